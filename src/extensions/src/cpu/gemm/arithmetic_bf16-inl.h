// Many rows times weights in pairs of bfloat16.
#pragma once

#include "cpu/gemm/blocked-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct PairsProduct {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kTerms = 1;
  static constexpr int kResultsPerLane = 2;
  static constexpr int kDepthUnit = 2;
  static constexpr int kOutputUnit = 1;
  static constexpr bool kTileByTile = false;
  static constexpr bool kAsksAhead = true;
  static constexpr int kTaskOutputs = 96;
  static constexpr int kInPlaceTiles = kProductTiles;
  static constexpr int kDepth = 256;
  typedef uint16_t Weight;
  typedef PairMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  static constexpr int in_place_depth(int) { return kDepth; }

  template <Element kElement>
  VEC_FN F read(const uint16_t* row, int64_t count, int = 0) {
    return load_pairs(row, count);
  }

  VEC_FN F start(float bias) { return set1(bias); }
  // Neighbouring outputs are rounded to pairs before they are transposed: half the work.
  VEC_FN F outputs(const float* c, int64_t next) { return make_pairs(load(c), load(c + next)); }
  template <Element kElement>
  VEC_FN void write(uint16_t* y, F pairs, int64_t count) {
    if (count >= 2 * kLanes) return store((float*)y, pairs);
    float part[kLanes];
    store(part, pairs);
    memcpy(y, part, count * sizeof(*y));
  }

  static void multiply(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
    gemm_vectors<Mac, true, Walk::along_rows>(x.vectors, {(const float*)w.data, w.stride / 2, 1, w.ahead / 2},
                                              x.data, depth / 2, c, outputs, x.following(depth / 2));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
