// The weights of a quantized layer as plain addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/interface/kernels.h"
#include "cpu/runtime/rows.h"
#include "quantized_linear.h"

namespace tiny_llm_ext::cpu {

// Evaluated matrices of the same input, and the norm of that before. The arrays must outlive it; those that
// are not in place are copied. A decoder block keeps it from step to step: to follow every array to its
// address takes longer than the product of a small matrix, because the weights themselves have driven the
// arrays out of the caches.
class LayerWeights {
 public:
  LayerWeights(const std::vector<QuantizedMatrix>& matrices, const std::optional<FirstNorm>& norm,
               int group_size, int bits, int threads);

  struct Matrix {
    const std::byte *words, *scales, *biases, *bias;  // no bias: null
    int64_t words_row_stride, scales_row_stride, biases_row_stride;
    int64_t outputs;
  };

  const std::vector<Matrix>& matrices() const { return matrices_; }
  int64_t outputs() const { return outputs_; }  // of all matrices
  int64_t elements() const { return outputs_ * inputs_; }
  int group_size() const { return group_size_; }

  // The norm of a row, if there is one, without the row.
  const std::optional<NormTask>& norm() const { return norm_; }

  // A task on these matrices, without rows.
  QuantizedTask task() const;
  // Points a task at the weights of the outputs of a matrix from n on.
  void set(QuantizedTask& task, size_t matrix, int64_t n) const;
  const std::byte* bias(size_t matrix, int64_t n) const;  // null if there is none

 private:
  std::vector<Matrix> matrices_;
  std::optional<NormTask> norm_;
  std::vector<RowMatrix> copies_;  // of arrays that are not in place
  int64_t inputs_, outputs_ = 0;
  int group_size_, bits_;
  int64_t itemsize_;  // of scales, biases and bias
};

}  // namespace tiny_llm_ext::cpu
