// A tile of keys or values in threadgroup memory, loaded and read by all SIMD groups of a threadgroup.
#pragma once

#include "metal/kernels/features.h"
#include "metal/kernels/unroll.h"

namespace tiny_llm_ext {

// The row stride of a tile: 16 bytes more than a row, so that the elements of a column are in different
// banks.
template <typename T, int kHeadSize>
constexpr int tile_stride() {
  return kHeadSize + 16 / int(sizeof(T));
}

// Loads rows begin .. begin + kRows - 1 of `count` rows with `columns` elements. Everything beyond is set to
// 0, since a weight of 0 does not hide a NaN. A thread copies four neighbours at a time.
template <typename T, int kHeadSize, int kRows, int kThreads>
inline void load_tile(threadgroup T* tile, device const T* rows, int64_t row_stride, int begin, int count,
                      int columns, int thread_index) {
  constexpr int kRun = 4, kRuns = kHeadSize / kRun;
  for (int i = thread_index; i < kRows * kRuns; i += kThreads) {
    const int row = i / kRuns, column = i % kRuns * kRun;
    const bool is_row = begin + row < count;
    threadgroup T* to = tile + row * tile_stride<T, kHeadSize>() + column;
    device const T* from = rows + (begin + row) * row_stride + column;
    TINY_LLM_UNROLL
    for (int k = 0; k < kRun; k++) {
      const bool is_real = is_row && (!has_padded_head || column + k < columns);
      to[k] = is_real ? from[k] : T(0);
    }
  }
}

inline bool is_finite(float x) { return x - x == 0.0f; }

// Sets values of a tile to 0 that are NaN or infinite: a weight of 0 does not hide them. Returns 1 if there
// are any among those that this thread has loaded, else 0.
template <typename T, int kHeadSize, int kRows, int kThreads>
inline float clear_other_values(threadgroup T* tile, int thread_index) {
  constexpr int kRun = 4, kRuns = kHeadSize / kRun;
  float found = 0.0f;
  for (int i = thread_index; i < kRows * kRuns; i += kThreads) {
    threadgroup T* values = tile + i / kRuns * tile_stride<T, kHeadSize>() + i % kRuns * kRun;
    TINY_LLM_UNROLL
    for (int k = 0; k < kRun; k++) {
      if (is_finite(float(values[k]))) continue;
      values[k] = T(0);
      found = 1.0f;
    }
  }
  return found;
}

}  // namespace tiny_llm_ext
