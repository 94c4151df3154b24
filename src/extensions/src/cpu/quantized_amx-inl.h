// Many rows times quantized weights on AMX tiles: weight rows are the A operand, packed pairs of x the B
// operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_pairs-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxProduct : PairsProduct {
  VEC_FN void enter() {
    TileConfig config;
    _tile_loadconfig(&config);
  }
  VEC_FN void leave() { _tile_release(); }

  static void multiply(const uint16_t* w, const float* x, int vectors, int depth, float* c) {
    tile_gemm<true>({(const float*)w, kDepth * 2}, kProductOutputs / 16, x, vectors, depth / 32, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
