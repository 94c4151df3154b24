// The arithmetic of blocked products of float32 and float16 on AMX tiles: x and weights are split bf16.
#pragma once

#include "cpu/gemm/arithmetic_f32-inl.h"
#include "cpu/gemm/blocked_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
struct AmxSplitBf16Arithmetic : F32Arithmetic {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kParts = kSplitParts<kElement>;
  static constexpr int kDepthUnit = 32;
  static constexpr bool kPackedByVector = true;
  static constexpr bool kPrefetches = false;
  static constexpr int kNC = 384;
  static constexpr int kInPlaceTiles = 0;
  static constexpr int kKC = 128;  // 16 or 24 kB of x for two tiles of lanes
  typedef uint16_t Weight;

  // AMX flushes denormals. Operands are scaled up, so that every part of a float32 and every product that
  // float32 could represent is normal. Results that become infinite are computed again without tiles
  // (dispatch_amx-inl.h).
  static constexpr float kScale = kElement == Element::f32 ? 0x1p32f : 1;

  VEC_FN void enter() { WithTiles::enter(); }
  VEC_FN void leave() { WithTiles::leave(); }

  template <Element kOfRow>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t count, int part) {
    static_assert(kOfRow == kElement);
    auto parts = Bf16Parts::of(mul(load_some<kElement>(row, count), set1(kScale)),
                               mul(load_some<kElement>(row + kLanes, count - kLanes), set1(kScale)));
    for (int i = 0; i < part; i++) Bf16Parts::next(parts);
    return (F)Bf16Parts::next(parts);
  }

  VEC_FN F initial_sum(float bias) { return set1(bias * kScale * kScale); }
  VEC_FN F epilogue_load(const float* c, int64_t) { return mul(load(c), set1(1 / kScale / kScale)); }

  static void multiply(WeightBlock<uint16_t> w, int outputs, PackedPanel x, int depth, float* c) {
    multiply_on_tiles<kParts>(w, outputs, x, depth, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
