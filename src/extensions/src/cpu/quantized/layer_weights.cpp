// Finds the addresses.
#include "cpu/quantized/layer_weights.h"

#include <utility>

#include "core/dtype.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr int64_t kWordBytes = 4;

}  // namespace

LayerWeights::LayerWeights(const std::vector<QuantizedMatrix>& matrices, const std::optional<FirstNorm>& norm,
                           int group_size, int bits, int threads)
    : inputs_(int64_t{matrices[0].scales.shape(1)} * group_size),
      group_size_(group_size),
      bits_(bits),
      itemsize_(matrices[0].scales.itemsize()) {
  const auto place = [&](const mx::array& array, const std::byte*& address, int64_t* row_stride) {
    RowMatrix rows(array, threads);
    address = rows.at(0);
    if (row_stride) *row_stride = rows.stride();
    copies_.push_back(std::move(rows));
  };
  for (const QuantizedMatrix& given : matrices) {
    Matrix matrix = {};
    place(given.weight, matrix.words, &matrix.words_row_stride);
    place(given.scales, matrix.scales, &matrix.scales_row_stride);
    place(given.biases, matrix.biases, &matrix.biases_row_stride);
    if (given.bias) place(*given.bias, matrix.bias, nullptr);
    matrix.outputs = given.weight.shape(0);
    outputs_ += matrix.outputs;
    matrices_.push_back(matrix);
  }
  if (norm) {
    const std::byte* weight;
    place(norm->weight, weight, nullptr);
    norm_ = {.x = nullptr,
             .y = nullptr,
             .weight = weight,
             .weight_element = element_of(norm->weight.dtype()),
             .eps = static_cast<float>(norm->eps),
             .width = inputs_};
  }
}

QuantizedTask LayerWeights::task() const {
  QuantizedTask task = {};
  task.num_groups = inputs_ / group_size_;
  task.group_size = group_size_;
  task.bits = bits_;
  return task;
}

void LayerWeights::set(QuantizedTask& task, size_t matrix, int64_t n) const {
  const Matrix& from = matrices_[matrix];
  task.w = reinterpret_cast<const uint32_t*>(from.words + n * from.words_row_stride * kWordBytes);
  task.w_row_stride = from.words_row_stride;
  task.scales = from.scales + n * from.scales_row_stride * itemsize_;
  task.scales_row_stride = from.scales_row_stride;
  task.biases = from.biases + n * from.biases_row_stride * itemsize_;
  task.biases_row_stride = from.biases_row_stride;
}

const std::byte* LayerWeights::bias(size_t matrix, int64_t n) const {
  const std::byte* const bias = matrices_[matrix].bias;
  return bias ? bias + n * itemsize_ : nullptr;
}

std::shared_ptr<const LayerWeights> place_weights(const std::vector<QuantizedMatrix>& matrices,
                                                  const std::optional<FirstNorm>& norm, int group_size,
                                                  int bits, int threads) {
  return std::make_shared<const LayerWeights>(matrices, norm, group_size, bits, threads);
}

}  // namespace tiny_llm_ext::cpu
