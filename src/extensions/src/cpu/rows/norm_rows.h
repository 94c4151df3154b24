// The root mean square norm of rows in any layout, on as many threads as pay off.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext::cpu {

// Writes the `rows` rows of x, normalised and times the weight, to y, row after row. y may be the memory of
// x.
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
