// Operands of bfloat16 pair products: a pair is two neighbours of the head dimension for the scores, and two
// keys for the output.
//
// K is read in place; V is zipped into pairs of keys, tile by tile. P is rounded to bfloat16 for the second
// product; its sum is taken before the rounding.
#pragma once

#include "cpu/attention/forward-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The probabilities of one row vector at keys 2 * pair and 2 * pair + 1, as a pair; an odd last key is paired
// with 0. In place: pair i overwrites key i. Returns the sum before rounding.
VEC_FN F exponential_pair(float* s, int stride, int keys, int pair, Exponent exponent) {
  const float* row = s + 2 * pair * stride;
  F low = exp2(fma(load(row), exponent.scale, exponent.shift));
  F high = 2 * pair + 1 < keys ? exp2(fma(load(row + stride), exponent.scale, exponent.shift)) : zero();
  store(s + pair * stride, make_pairs(low, high));
  return add(low, high);
}

struct Bf16Operands {
  static constexpr Element kElement = Element::bf16;
  static constexpr bool kBf16Products = true;
  static constexpr int kKeyTile = 64;
  static constexpr int kQueryTilesPerTask = 4;
  static constexpr bool kSharesLanes = true;
  static constexpr bool kReadsAddresses = false;

  static constexpr int steps(int E) { return (E + 1) / 2; }
  static constexpr int output_rows(int E) { return E; }
  static constexpr size_t prepared_floats(int E) {
    return kKeyTile / 2 * padded(E) + kKeyTile * padded(steps(E));
  }

  static double peak(int64_t steps) { return multiply_peak<PairMac, 4>(steps); }
  VEC_FN void enter() {}
  VEC_FN void leave() {}

  VEC_FN F read_query(const ForwardTask& task, int64_t offset, int unit) {
    return load_pairs((const uint16_t*)task.q + offset + 2 * unit, task.E - 2 * unit);
  }

  static void prepare(const ForwardTask& task, KeyRows from, KeyTile& tile, float* memory) {
    const uint16_t* k = (const uint16_t*)from.k.data;
    const uint16_t* v = (const uint16_t*)from.v.data;
    int row = padded(task.E);
    for (int key = 0; key < tile.keys; key += 2, v += 2 * from.v.stride) {
      if (from.v.prefetch_distance) {
        prefetch(v + from.v.prefetch_distance, task.E * sizeof(*v));
        prefetch(v + from.v.prefetch_distance + from.v.stride, task.E * sizeof(*v));
      }
      for (int e = 0; e < task.E; e += kLanes)
        store(memory + key / 2 * row + e,
              zip_pairs(v + e, key + 1 < tile.keys ? v + from.v.stride + e : nullptr, task.E - e));
    }
    tile.v = {memory, row};
    if (task.E % 2 == 0 && from.k.stride % 2 == 0) {
      tile.k = {k, from.k.stride / 2, from.k.prefetch_distance / 2};
      return;
    }
    memory += kKeyTile / 2 * row;
    row = padded(steps(task.E));
    for (int key = 0; key < tile.keys; key++, k += from.k.stride)
      for (int e = 0; e < task.E; e += 2 * kLanes)
        store(memory + key * row + e / 2, load_pairs(k + e, task.E - e));
    tile.k = {memory, row};
  }

  static void scores(const QueryTile& tile, const KeyTile& keys, int count, int E, float* s) {
    vector_scores<PairMac>(tile, keys.k, count, steps(E), s);
  }

  VEC_FN F exponentials(float* s, int stride, int keys, Exponent exponent) {
    F sum = zero();
#pragma GCC unroll 2
    for (int pair = 0; pair < (keys + 1) / 2; pair++)
      sum = add(sum, exponential_pair(s, stride, keys, pair, exponent));
    return sum;
  }

  static void values(QueryTile& tile, const KeyTile& keys, int count, int E, const float* p) {
    vector_values<PairMac>(tile, keys.v, (count + 1) / 2, E, p);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
