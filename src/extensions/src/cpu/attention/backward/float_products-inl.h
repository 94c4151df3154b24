// Products of the backward passes in float32; 16-bit inputs are converted.
#pragma once

#include "cpu/attention/backward/tile-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement_>
struct FloatProducts {
  static constexpr Element kElement = kElement_;
  static constexpr int kStreamRows = 64;
  static constexpr int kLaneTilesPerTask = 4;
  typedef StorageOf<kElement> T;

  static constexpr int steps(int E) { return E; }
  static constexpr int output_rows(int E) { return E; }
  static constexpr size_t prepared_floats(int E) { return kStreamRows * padded(E); }

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  VEC_FN F read(const T* row, int unit, int E) { return load_some<kElement>(row + unit, E - unit); }

  // Rows of padded(E) floats serve both kinds of products.
  template <class Row>
  static StreamedRows prepare(int count, int E, bool, Row row, float* memory) {
    for (int j = 0; j < count; j++) {
      const T* from = row(j);
      for (int e = 0; e < E; e += kLanes) store(memory + j * padded(E) + e, read(from, e, E));
    }
    return {memory, memory, padded(E), padded(E)};
  }

  // out[row][lane] = the product over E of each streamed row with each lane.
  static void multiply_along_E(const StreamedRows& rows, int count, const float* operand, int vectors, int E,
                               float* out) {
    gemm_vectors<FloatMac, false, LayoutA::row_major>(
        vectors, {(const float*)rows.along_E, rows.along_E_stride, 1, 0}, operand, E, out, count);
  }

  // sums[e][lane] += the product over the streamed rows with the factors of each lane.
  static void multiply_along_rows(const StreamedRows& rows, int count, const float* factors, int vectors,
                                  int E, float* sums) {
    gemm_vectors<FloatMac, true, LayoutA::column_major>(
        vectors, {(const float*)rows.along_rows, 1, rows.along_rows_stride, 0}, factors, count, sums, E);
  }

  // The factors of streamed rows m and m + 1, in place of the values that they were computed from.
  VEC_FN void store_factors(float* factors, int lanes, int m, F low, F high) {
    store(factors + m * lanes, low);
    store(factors + (m + 1) * lanes, high);
  }
  VEC_FN void end_factors(float*, int, int) {}
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
