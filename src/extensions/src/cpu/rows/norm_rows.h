// The root mean square norm of rows wherever they lie, on as many threads as they are worth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/runtime/row_memory.h"

namespace tiny_llm_ext::cpu {

// `rows` rows of x, normalised and times the weight, to y, row after row. y may be where x is.
struct NormRows {
  NormRows(const mlx::core::array& x, const mlx::core::array& weight, float eps);

  RowReader x, weight;
  Element weight_element;
  int64_t rows, width;
  float eps;
  std::byte* y = nullptr;

  void run(const RowKernels& kernels, int threads) const;
};

}  // namespace tiny_llm_ext::cpu
