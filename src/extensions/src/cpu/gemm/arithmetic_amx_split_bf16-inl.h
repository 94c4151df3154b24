// Many rows times dense weights of wide types on AMX tiles: both are sums of terms in bfloat16.
#pragma once

#include "cpu/gemm/blocked_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
struct TermsProduct : WideProduct {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kTerms = TINY_LLM_ISA::kTerms<kElement>;
  static constexpr int kDepthUnit = 32;
  static constexpr bool kTileByTile = true;
  static constexpr bool kAsksAhead = false;
  static constexpr int kTaskOutputs = 384;
  static constexpr int kInPlaceTiles = 0;
  static constexpr int kDepth = 128;  // 16 or 24 kB of x for two tiles of lanes
  typedef uint16_t Weight;

  // Tiles take tiny numbers for zero. What is multiplied is larger by this, so that terms and products of any
  // float32 are not tiny. What becomes infinite instead is not left to tiles (cpu/gemm/dispatch_amx-inl.h).
  static constexpr float kLarger = kElement == Element::f32 ? 0x1p32f : 1;

  VEC_FN void enter() { WithTiles::enter(); }
  VEC_FN void leave() { WithTiles::leave(); }

  template <Element kOfRow>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t count, int term) {
    static_assert(kOfRow == kElement);
    F first = mul(load_some<kElement>(row, count), set1(kLarger));
    F second = mul(load_some<kElement>(row + kLanes, count - kLanes), set1(kLarger));
    for (int i = 0; i < term; i++) next_term(first, second);
    return neighbours(first, second);
  }

  VEC_FN F start(float bias) { return set1(bias * kLarger * kLarger); }
  VEC_FN F outputs(const float* c, int64_t) { return mul(load(c), set1(1 / kLarger / kLarger)); }

  static void multiply(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
    multiply_tiles<kTerms>(w, outputs, x, depth, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
