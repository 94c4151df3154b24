// A tile of keys or values in threadgroup memory, which all SIMD groups of a threadgroup fill and read
// together.
#pragma once

#include <metal_stdlib>

namespace tiny_llm_ext {

// Elements from row to row of a tile: 16 bytes more than a row has, so that a column lies in different banks.
template <typename T, int E>
constexpr int tile_stride() {
  return E + 16 / int(sizeof(T));
}

// Rows begin .. begin + rows - 1 of a dense matrix of `count` rows; those beyond its end become zero, since a
// weight of 0 does not hide a NaN.
template <typename T, int E, int rows, int threads>
inline void load_tile(threadgroup T* tile, device const T* matrix, int begin, int count, int thread_index) {
  for (int i = thread_index; i < rows * E; i += threads) {
    const int row = i / E, column = i % E;
    const bool real = begin + row < count;
    tile[row * tile_stride<T, E>() + column] = real ? matrix[int64_t(begin + row) * E + column] : T(0);
  }
}

}  // namespace tiny_llm_ext
