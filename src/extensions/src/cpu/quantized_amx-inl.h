// Many rows times quantized weights on AMX tiles: x is the A operand where it lies, widened pairs of weights
// the B operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_pairs-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxMany : PairsMany {
  static constexpr int kTileRows = 16;

  VEC_FN void enter() {
    TileConfig config;
    _tile_loadconfig(&config);
  }
  VEC_FN void leave() { _tile_release(); }

  // Rows that do not fill a tile go through copies that do.
  static void multiply(const float* x, int64_t x_stride, int rows, const float* w, int steps, float* c) {
    const int whole = rows / kTileRows, rest = rows % kTileRows;
    tile_gemm<true>({x, x_stride * 4}, whole, w, kRowVectors, steps / 16, c);
    if (rest == 0) return;
    alignas(64) float some[kTileRows * kDepth / kPerStep], sums[kTileRows * kManyOutputs];
    memset(some, 0, sizeof some);
    for (int row = 0; row < rest; row++)
      memcpy(some + row * steps, x + (whole * kTileRows + row) * x_stride, steps * sizeof(float));
    float* out = c + whole * kTileRows * kManyOutputs;
    memcpy(sums, out, rest * kManyOutputs * sizeof(float));
    tile_gemm<true>({some, steps * 4}, 1, w, kRowVectors, steps / 16, sums);
    memcpy(out, sums, rest * kManyOutputs * sizeof(float));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
