// 8 x 8 matrices in the registers of a SIMD group. Each lane holds two neighbours of one row, so a row is
// distributed over four lanes, whose indices differ in the bits 1 and 8.
#pragma once

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/kernels/unroll.h"

namespace tiny_llm_ext {

typedef metal::simdgroup_matrix<float, 8, 8> Fragment;

// The two elements of a lane in every fragment: (row, column) and (row, column + 1).
inline int fragment_row(int lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline int fragment_column(int lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

inline void set_fragment(thread Fragment& matrix, float first, float second) {
  matrix.thread_elements()[0] = first;
  matrix.thread_elements()[1] = second;
}

inline float row_max(float x) {
  x = metal::max(x, metal::simd_shuffle_xor(x, ushort(1)));
  return metal::max(x, metal::simd_shuffle_xor(x, ushort(8)));
}

inline float row_sum(float x) {
  x += metal::simd_shuffle_xor(x, ushort(1));
  return x + metal::simd_shuffle_xor(x, ushort(8));
}

}  // namespace tiny_llm_ext
