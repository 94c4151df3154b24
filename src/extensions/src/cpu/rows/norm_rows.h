// The root mean square norm of rows in any layout, on as many threads as pay off.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/interface/kernels.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext::cpu {

inline constexpr double kNsPerNormed = 0.25;  // nanoseconds an element

// Writes the rows of x, normalised and times the weight, to y, row after row. y may be the memory of x.
class NormRows {
 public:
  NormRows(RowReader x, int64_t rows, const mlx::core::array& weight, float eps, std::byte* y);

  void run(const RowKernels& kernels, int threads) const;

 private:
  RowReader x_, weight_;
  Element weight_element_;
  int64_t rows_, width_;
  float eps_;
  std::byte* y_;
};

}  // namespace tiny_llm_ext::cpu
