// Many rows times weights in bfloat16 on AMX tiles.
#pragma once

#include "cpu/gemm/arithmetic_bf16-inl.h"
#include "cpu/gemm/blocked_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxProduct : PairsProduct {
  static constexpr int kDepthUnit = 32;
  static constexpr int kOutputUnit = 16;
  static constexpr bool kTileByTile = true;
  static constexpr bool kAsksAhead = true;
  static constexpr int kTaskOutputs = 384;  // x streams by once for each so many
  // MLX's arrays do not begin where a cache line does, so that every row of a tile of weights lies in two.
  // Many rows of x pay for a copy that does better.
  static constexpr int kInPlaceTiles = 2;
  static constexpr int kDepth = 256;  // 16 kB of x for two tiles of lanes

  VEC_FN void enter() { WithTiles::enter(); }
  VEC_FN void leave() { WithTiles::leave(); }

  // 32 kB of x: what comes from memory, a row here and a row there, is read in longer pieces.
  static constexpr int in_place_depth(int vectors) { return vectors == 1 ? 1024 : 512; }

  static void multiply(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
    multiply_tiles<1>(w, outputs, x, depth, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
