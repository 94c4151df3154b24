// Many rows times weights on AMX tiles: weight rows are the A operand, packed pairs of x the B operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/product_pairs-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxProduct : PairsProduct {
  static constexpr int kDepthUnit = 32;
  static constexpr int kOutputUnit = 16;
  static constexpr bool kAsksAhead = false;

  VEC_FN void enter() {
    TileConfig config;
    _tile_loadconfig(&config);
  }
  VEC_FN void leave() { _tile_release(); }

  static void multiply(WeightRows<uint16_t> w, int outputs, const float* x, int vectors, int depth,
                       float* c) {
    tile_gemm<true>({w.data, w.stride * 2}, (outputs + 15) / 16, x, vectors, depth / 32, c);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
