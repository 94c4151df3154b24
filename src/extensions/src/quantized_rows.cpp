// The front door of the look-up in packed weights, and its transforms.
#include "attention/checks.h"
#include "row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kName = "quantized_rows";

void check_weights(const mx::array& weight, const mx::array& scales, const mx::array& biases, int group_size,
                   int bits) {
  if (group_size != 32 && group_size != 64 && group_size != 128)
    reject(kName, "group_size", std::to_string(group_size), "32, 64 or 128");
  if (bits != 4 && bits != 8) reject(kName, "bits", std::to_string(bits), "4 or 8");
  if (weight.dtype() != mx::uint32) reject(kName, "weight", to_text(weight.dtype()), "uint32");
  if (weight.ndim() != 2) reject(kName, "weight", to_text(weight.shape()), "(V, K * bits / 32)");
  check_floating(kName, "scales", scales);
  if (biases.dtype() != scales.dtype())
    reject(kName, "biases", to_text(biases.dtype()), to_text(scales.dtype()) + ", the dtype of scales");
  const int64_t words = int64_t{group_size} * bits / 32;
  for (auto [argument, array] : {std::pair{"scales", &scales}, std::pair{"biases", &biases}}) {
    if (array->ndim() != 2 || array->shape(0) != weight.shape(0) ||
        array->shape(1) * words != weight.shape(1)) {
      reject(kName, argument, to_text(array->shape()),
             "(V, groups) with " + std::to_string(words) + " words a group of weight " +
                 to_text(weight.shape()));
    }
  }
}

}  // namespace

mx::array quantized_rows(const mx::array& ids, const mx::array& weight, const mx::array& scales,
                         const mx::array& biases, int group_size, int bits, mx::StreamOrDevice stream) {
  if (ids.dtype() != mx::int32 && ids.dtype() != mx::int64 && ids.dtype() != mx::uint32)
    reject(kName, "ids", to_text(ids.dtype()), "int32, uint32 or int64");
  check_weights(weight, scales, biases, group_size, bits);
  auto primitive = std::make_shared<QuantizedRows>(cpu_stream(kName, stream), group_size, bits);
  std::vector<mx::array> inputs = {ids, weight, scales, biases};
  mx::Shape shape = primitive->output_shapes(inputs)[0];
  return mx::array(std::move(shape), scales.dtype(), std::move(primitive), std::move(inputs));
}

// Mapped ids are more ids.
std::pair<std::vector<mx::array>, std::vector<int>> QuantizedRows::vmap(const std::vector<mx::array>& inputs,
                                                                        const std::vector<int>& axes) {
  if (axes[1] >= 0 || axes[2] >= 0 || axes[3] >= 0)
    throw NotImplemented(std::string(kName) + ": vmap is supported along ids only");
  std::vector<mx::array> mapped = inputs;
  mapped[0] = lead(inputs[0], axes[0], inputs[0].shape(axes[0]));
  mx::Shape shape = output_shapes(mapped)[0];
  return {{mx::array(std::move(shape), inputs[2].dtype(),
                     std::make_shared<QuantizedRows>(stream(), group_size_, bits_), std::move(mapped))},
          {0}};
}

bool QuantizedRows::is_equivalent(const mx::Primitive& other) const {
  const auto& that = static_cast<const QuantizedRows&>(other);
  return group_size_ == that.group_size_ && bits_ == that.bits_;
}

std::vector<mx::Shape> QuantizedRows::output_shapes(const std::vector<mx::array>& inputs) {
  mx::Shape shape = inputs[0].shape();
  shape.push_back(inputs[2].shape(1) * group_size_);
  return {shape};
}

}  // namespace tiny_llm_ext
