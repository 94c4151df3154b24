// The arithmetic of blocked products with pair dot products of bfloat16.
#pragma once

#include "cpu/gemm/blocked-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct Bf16Arithmetic {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kParts = 1;
  static constexpr int kOutputsPerLane = 2;
  static constexpr int kDepthUnit = 2;
  static constexpr int kOutputUnit = 1;
  static constexpr bool kPackedByVector = false;
  static constexpr bool kPrefetches = true;
  static constexpr int kNC = 96;
  static constexpr int kInPlaceTiles = kTaskTiles;
  static constexpr int kKC = 256;
  typedef uint16_t Weight;
  typedef PairMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  static constexpr int in_place_kc(int) { return kKC; }

  template <Element kElement>
  VEC_FN F read(const uint16_t* row, int64_t count, int = 0) {
    return load_pairs(row, count);
  }

  VEC_FN F initial_sum(float bias) { return set1(bias); }
  // Outputs are rounded to pairs before they are transposed, which halves the work.
  VEC_FN F epilogue_load(const float* c, int64_t next) { return make_pairs(load(c), load(c + next)); }
  template <Element kElement>
  VEC_FN void epilogue_store(uint16_t* y, F pairs, int64_t count) {
    if (count >= 2 * kLanes) return store((float*)y, pairs);
    float part[kLanes];
    store(part, pairs);
    memcpy(y, part, count * sizeof(*y));
  }

  static void multiply(WeightBlock<uint16_t> w, int outputs, PackedPanel x, int depth, float* c) {
    gemm_vectors<Mac, true, LayoutA::row_major>(
        x.vectors, {(const float*)w.data, w.stride / 2, 1, w.prefetch_distance / 2}, x.data, depth / 2, c,
        outputs, x.prefetch(depth / 2));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
