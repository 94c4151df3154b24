// Operands of float32 products. float32 K and V are read in place; 16-bit ones are converted tile by tile.
#pragma once

#include "cpu/attention/key_tile-inl.h"
#include "cpu/gemm/microkernel-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The two products on vectors, which broadcast elements of K and V, or pairs of elements.
template <class Mac>
static void vector_scores(const QueryTile& tile, OperandRows k, int keys, int steps, float* s) {
  gemm_query_tile<Mac, false, LayoutA::row_major>(
      tile.vectors, tile.lanes_per_row,
      {(const float*)k.data, k.stride, tile.lanes_per_row, k.prefetch_distance}, tile.q,
      steps / tile.lanes_per_row, s, keys);
}

template <class Mac>
static void vector_values(QueryTile& tile, OperandRows v, int steps, int E, const float* p) {
  gemm_query_tile<Mac, true, LayoutA::column_major>(
      tile.vectors, tile.lanes_per_row,
      {(const float*)v.data, tile.lanes_per_row, v.stride, v.prefetch_distance}, p, steps, tile.o,
      E / tile.lanes_per_row);
}

template <Element kElement_>
struct FloatOperands {
  static constexpr Element kElement = kElement_;
  static constexpr bool kBf16Products = false;
  static constexpr int kKeyTile = 64;
  static constexpr int kQueryTilesPerTask = 4;
  static constexpr bool kSharesLanes = true;
  static constexpr bool kReadsAddresses = kElement != Element::f32;
  typedef StorageOf<kElement> T;

  static constexpr int steps(int E) { return E; }
  static constexpr int output_rows(int E) { return E; }
  static constexpr size_t prepared_floats(int E) {
    return kElement == Element::f32 ? 0 : 2 * kKeyTile * padded(E);
  }

  static double peak(int64_t steps) { return multiply_peak<FloatMac, 2>(steps); }
  VEC_FN void enter() {}
  VEC_FN void leave() {}

  VEC_FN F read_query(const ForwardTask& task, int64_t offset, int unit) {
    return load_some<kElement>((const T*)task.q + offset + unit, task.E - unit);
  }

  static void convert_rows(SourceRows from, int keys, int E, float* out) {
    for (int key = 0; key < keys; key++, out += padded(E)) {
      const uint16_t* row = from.rows ? from.at<true>(key) : from.at<false>(key);
      if (from.prefetch_distance) prefetch(row + from.prefetch_distance, E * sizeof(*row));
      if (key < from.next_count) prefetch(from.next_rows[key], E * sizeof(*row));
      for (int e = 0; e < E; e += kLanes) store(out + e, load_some<kElement>(row + e, E - e));
    }
  }

  static void prepare(const ForwardTask& task, KeyRows from, KeyTile& tile, float* memory) {
    if constexpr (kElement == Element::f32) {
      tile.k = {from.k.data, from.k.stride, from.k.prefetch_distance};
      tile.v = {from.v.data, from.v.stride, from.v.prefetch_distance};
    } else {
      int row = padded(task.E);
      float* v_f32 = memory + kKeyTile * row;
      convert_rows(from.k, tile.keys, task.E, memory);
      convert_rows(from.v, tile.keys, task.E, v_f32);
      tile.k = {memory, row};
      tile.v = {v_f32, row};
    }
  }

  static void scores(const QueryTile& tile, const KeyTile& keys, int count, int E, float* s) {
    vector_scores<FloatMac>(tile, keys.k, count, E, s);
  }

  // In place.
  VEC_FN F exponentials(float* s, int stride, int keys, Exponent exponent) {
    F sum = zero();
#pragma GCC unroll 4
    for (int key = 0; key < keys; key++) {
      F p = exp2(fma(load(s + key * stride), exponent.scale, exponent.shift));
      sum = add(sum, p);
      store(s + key * stride, p);
    }
    return sum;
  }

  static void values(QueryTile& tile, const KeyTile& keys, int count, int E, const float* p) {
    vector_values<FloatMac>(tile, keys.v, count, E, p);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
