// Packed words with outputs across the lanes: the words of kLanes rows of weights are transposed as they are
// read, so that lane n of a vector belongs to output n. No sum crosses lanes, and results are stored where
// they are.
//
// A weight is scale * q + bias = scale * (q - half) + (bias + half * scale) with half = 2^(bits - 1): q -
// half is small, so sums of its products are exact for longer.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// kLanes rows of a matrix, one for each lane. Rows beyond the last repeat it; their results are not stored.
template <class T>
struct LaneRows {
  const T* row[kLanes];
  int64_t length;

  LaneRows(const T* first, int64_t stride, int64_t rows, int64_t length) : length(length) {
    for (int64_t i = 0; i < kLanes; i++) row[i] = first + (i < rows ? i : rows - 1) * stride;
  }
};

// words[j][lane] = word begin + j of the lane's row, for j < kLanes; 0 beyond the end of a row.
VEC_FN void transpose_words(const LaneRows<uint32_t>& rows, int64_t begin, float* words) {
  F block[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++)
    block[i] = load_some<Element::f32>((const float*)rows.row[i] + begin, rows.length - begin);
  transpose(block);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++) store(words + i * kLanes, block[i]);
}

// block[j] lane = element begin + j of the lane's row, for j < kLanes.
template <Element kElement>
VEC_FN void transpose_elements(const LaneRows<StorageOf<kElement>>& rows, int64_t begin, F* block) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++) block[i] = load_some<kElement>(rows.row[i] + begin, rows.length - begin);
  transpose(block);
}

// The scales and biases, in the form above, of kLanes outputs for kLanes quantization groups.
template <int kBits, Element kElement>
struct TransposedScales {
  F scale[kLanes], bias[kLanes];

  void read(const LaneRows<StorageOf<kElement>>& scales, const LaneRows<StorageOf<kElement>>& biases,
            int64_t begin) {
    const F half = set1((float)(1 << (kBits - 1)));
    transpose_elements<kElement>(scales, begin, scale);
    transpose_elements<kElement>(biases, begin, bias);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) bias[i] = fma(half, scale[i], bias[i]);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
