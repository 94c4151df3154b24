// The operation `quantized_rows`: a look-up in packed weights.
#include <limits>

#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kQuantizedRows = "quantized_rows";

void check_rows(const mx::array& ids, const mx::array& weight, const mx::array& scales,
                const mx::array& biases, int group_size, int bits) {
  if (ids.dtype() != mx::int32 && ids.dtype() != mx::int64 && ids.dtype() != mx::uint32)
    reject(kQuantizedRows, "ids", to_text(ids.dtype()), "int32, uint32 or int64");
  if (group_size != 32 && group_size != 64 && group_size != 128)
    reject(kQuantizedRows, "group_size", std::to_string(group_size), "32, 64 or 128");
  if (bits != 4 && bits != 8) reject(kQuantizedRows, "bits", std::to_string(bits), "4 or 8");
  if (weight.dtype() != mx::uint32) reject(kQuantizedRows, "weight", to_text(weight.dtype()), "uint32");
  if (weight.ndim() != 2) reject(kQuantizedRows, "weight", to_text(weight.shape()), "(V, K * bits / 32)");
  check_floating(kQuantizedRows, "scales", scales);
  if (biases.dtype() != scales.dtype())
    reject(kQuantizedRows, "biases", to_text(biases.dtype()),
           to_text(scales.dtype()) + ", the dtype of scales");
  const int64_t words = int64_t{group_size} * bits / 32;
  for (auto [argument, array] : {std::pair{"scales", &scales}, std::pair{"biases", &biases}}) {
    if (array->ndim() != 2 || array->shape(0) != weight.shape(0) ||
        array->shape(1) * words != weight.shape(1)) {
      reject(kQuantizedRows, argument, to_text(array->shape()),
             "(V, groups) with " + std::to_string(words) + " words a group of weight " +
                 to_text(weight.shape()));
    }
  }
  constexpr int kLongest = std::numeric_limits<mx::ShapeElem>::max();
  if (int64_t{scales.shape(1)} * group_size > kLongest) {
    reject(kQuantizedRows, "weight", to_text(weight.shape()),
           "rows of at most " + std::to_string(kLongest) + " numbers");
  }
}

mx::Shape rows_shape(const mx::array& ids, const mx::array& scales, int group_size) {
  mx::Shape shape = ids.shape();
  shape.push_back(scales.shape(1) * group_size);
  return shape;
}

mx::array looked_up(const std::vector<mx::array>& inputs, int group_size, int bits, mx::Stream stream) {
  return mx::array(rows_shape(inputs[0], inputs[2], group_size), inputs[2].dtype(),
                   std::make_shared<QuantizedRows>(stream, group_size, bits), inputs);
}

}  // namespace

mx::array quantized_rows(const mx::array& ids, const mx::array& weight, const mx::array& scales,
                         const mx::array& biases, int group_size, int bits, mx::StreamOrDevice stream) {
  check_rows(ids, weight, scales, biases, group_size, bits);
  return looked_up({ids, weight, scales, biases}, group_size, bits, cpu_stream(kQuantizedRows, stream));
}

// Mapped ids are more ids.
std::pair<std::vector<mx::array>, std::vector<int>> QuantizedRows::vmap(const std::vector<mx::array>& inputs,
                                                                        const std::vector<int>& axes) {
  if (axes[1] >= 0 || axes[2] >= 0 || axes[3] >= 0)
    throw NotImplemented(std::string(kQuantizedRows) + ": vmap is supported along ids only");
  std::vector<mx::array> mapped = inputs;
  mapped[0] = mapped_axis_first(inputs[0], axes[0], inputs[0].shape(axes[0]));
  return {{looked_up(mapped, group_size_, bits_, stream())}, {0}};
}

bool QuantizedRows::is_equivalent(const mx::Primitive& other) const {
  const auto& that = static_cast<const QuantizedRows&>(other);
  return group_size_ == that.group_size_ && bits_ == that.bits_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> QuantizedRows::output_shapes(const std::vector<mx::array>& inputs) {
  check_rows(inputs[0], inputs[1], inputs[2], inputs[3], group_size_, bits_);
  return {rows_shape(inputs[0], inputs[2], group_size_)};
}

}  // namespace tiny_llm_ext
