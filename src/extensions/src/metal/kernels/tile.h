// A tile of keys or values in threadgroup memory, which all SIMD groups of a threadgroup fill and read
// together.
#pragma once

#include <metal_stdlib>

namespace tiny_llm_ext {

// Elements from row to row of a tile: 16 bytes more than a row has, so that a column lies in different banks.
template <typename T, int kHeadSize>
constexpr int tile_stride() {
  return kHeadSize + 16 / int(sizeof(T));
}

// Rows begin .. begin + kRows - 1 of `count` rows of so many columns; what lies beyond either becomes zero,
// since a weight of 0 does not hide a NaN.
template <typename T, int kHeadSize, int kRows, int kThreads>
inline void load_tile(threadgroup T* tile, device const T* rows, int64_t row_stride, int begin, int count,
                      int columns, int thread_index) {
  for (int i = thread_index; i < kRows * kHeadSize; i += kThreads) {
    const int row = i / kHeadSize, column = i % kHeadSize;
    const bool real = begin + row < count && column < columns;
    tile[row * tile_stride<T, kHeadSize>() + column] =
        real ? rows[(begin + row) * row_stride + column] : T(0);
  }
}

}  // namespace tiny_llm_ext
