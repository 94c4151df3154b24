// A matrix, its copy in guarded memory, and the check of a product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_case.h"
#include "check.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {

struct Matrix {
  int64_t rows, columns, stride;
  std::vector<double> values;  // dense

  double at(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

inline Guarded write(const Matrix& matrix, Element element, Guard side) {
  Guarded memory((std::max<int64_t>(matrix.rows - 1, 0) * matrix.stride + matrix.columns) * bytes_of(element),
                 side);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column)
      put(memory, element, row * matrix.stride + column, matrix.at(row, column));
  }
  return memory;
}

// A sum of products, and the sum of their absolute values.
struct ExactSum {
  double sum, size;
};

// Checks that y (M, N) is exact(m, n) within `error` times the size, one rounding to its type and `least`,
// and that nothing was written between its rows.
template <class Exact>
void check_product(const Guarded& y, Element element, int64_t M, int64_t N, int64_t stride, double error,
                   const std::string& name, Exact exact, double least = 0x1p-25) {
  const double storage = element == Element::f32 ? 0 : element == Element::f16 ? 0x1p-11 : 0x1p-8;
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      const ExactSum expected = exact(m, n);
      const double got = get(y, element, m * stride + n);
      const double allowed = error * expected.size + storage * std::fabs(expected.sum) + least;
      if (!(std::fabs(got - expected.sum) <= allowed)) {
        check(false, name + ": row " + std::to_string(m) + " output " + std::to_string(n) + ": " +
                         std::to_string(got) + ", expected " + std::to_string(expected.sum));
        return;
      }
    }
    for (int64_t n = N; n < stride && m + 1 < M; ++n) {
      if (!check(std::isnan(get(y, element, m * stride + n)), name + ": written between the rows")) return;
    }
  }
  check(true, name);
}

}  // namespace tiny_llm_ext::tests
