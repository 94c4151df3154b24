// Products of the backward passes in bfloat16 pairs: two neighbours of the head dimension for S and dP, two
// streamed rows for the gradients. P and dS are rounded to bfloat16 for the latter.
#pragma once

#include "cpu/attention/backward/backward-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct Bf16Products {
  static constexpr Element kElement = Element::bf16;
  static constexpr int kStreamRows = 64;
  static constexpr int kLaneTilesPerTask = 4;

  static constexpr int steps(int E) { return (E + 1) / 2; }
  static constexpr int output_rows(int E) { return E; }
  static constexpr size_t prepared_floats(int E) {
    return kStreamRows * padded(steps(E)) + kStreamRows / 2 * padded(E);
  }

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  VEC_FN F read(const uint16_t* row, int unit, int E) { return load_pairs(row + 2 * unit, E - 2 * unit); }

  template <class Row>
  static StreamedRows prepare(int count, int E, bool along_rows, Row row, float* memory) {
    const int width = padded(steps(E));
    float* zipped = memory + kStreamRows * width;
    for (int j = 0; j < count; j++) {
      const uint16_t* from = row(j);
      for (int unit = 0; unit < steps(E); unit += kLanes)
        store(memory + j * width + unit, read(from, unit, E));
    }
    for (int j = 0; along_rows && j < count; j += 2) {
      const uint16_t *low = row(j), *high = j + 1 < count ? row(j + 1) : nullptr;
      for (int e = 0; e < E; e += kLanes)
        store(zipped + j / 2 * padded(E) + e, zip_pairs(low + e, high ? high + e : nullptr, E - e));
    }
    return {memory, zipped, width, padded(E)};
  }

  static void multiply_along_E(const StreamedRows& rows, int count, const float* operand, int vectors, int E,
                               float* out) {
    gemm_vectors<PairMac, false, LayoutA::row_major>(
        vectors, {(const float*)rows.along_E, rows.along_E_stride, 1, 0}, operand, steps(E), out, count);
  }

  static void multiply_along_rows(const StreamedRows& rows, int count, const float* factors, int vectors,
                                  int E, float* sums) {
    gemm_vectors<PairMac, true, LayoutA::column_major>(
        vectors, {(const float*)rows.along_rows, 1, rows.along_rows_stride, 0}, factors, (count + 1) / 2,
        sums, E);
  }

  // In place: the pair of rows m and m + 1 overwrites row m / 2.
  VEC_FN void store_factors(float* factors, int lanes, int m, F low, F high) {
    store(factors + m / 2 * lanes, make_pairs(low, high));
  }
  VEC_FN void end_factors(float*, int, int) {}
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
