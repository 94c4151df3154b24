// The arithmetic of blocked products on AMX tiles of bfloat16.
#pragma once

#include "cpu/gemm/arithmetic_bf16-inl.h"
#include "cpu/gemm/blocked_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxBf16Arithmetic : Bf16Arithmetic {
  static constexpr int kDepthUnit = 32;
  static constexpr int kOutputUnit = 16;
  static constexpr bool kPackedByVector = true;
  static constexpr bool kPrefetches = true;
  static constexpr int kNC = 384;  // x is read once for each block of outputs
  // MLX's arrays are not aligned to cache lines, so each row of a tile of weights lies in two lines. With
  // more row tiles, packing pays off.
  static constexpr int kInPlaceTiles = 2;
  static constexpr int kKC = 256;  // 16 kB of x for two tiles of lanes

  VEC_FN void enter() { WithTiles::enter(); }
  VEC_FN void leave() { WithTiles::leave(); }

  // 32 kB of x: longer runs of each row of weights, which come from memory.
  static constexpr int in_place_kc(int vectors) { return vectors == 1 ? 1024 : 512; }

  static void multiply(WeightBlock<uint16_t> w, int outputs, PackedPanel x, int depth, float* c) {
    multiply_on_tiles<1>(w, outputs, x, depth, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
