// A matrix of numbers, and its image in guarded memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_case.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {

struct Matrix {
  int64_t rows, columns, stride;
  std::vector<double> values;  // dense

  double at(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

inline Guarded write(const Matrix& matrix, cpu::Element element, Guard side) {
  Guarded memory((std::max<int64_t>(matrix.rows - 1, 0) * matrix.stride + matrix.columns) * bytes_of(element),
                 side);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column)
      put(memory, element, row * matrix.stride + column, matrix.at(row, column));
  }
  return memory;
}

}  // namespace tiny_llm_ext::tests
