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

// The same with two tiles of weights times two of x at a time, where there are as many: each tile that is
// loaded is multiplied twice.
struct AmxSquares : AmxProduct {
  static void multiply(WeightRows<uint16_t> w, int outputs, const float* x, int vectors, int depth,
                       float* c) {
    const int blocks = (outputs + 15) / 16, steps = depth / 32;
    const int64_t a_stride = w.stride * 2, stride = vectors * 64;
    for (int v = 0; v < vectors; v += 2)
      for (int block = 0; block < blocks; block += 2) {
        auto* a = (const char*)w.data + block * 16 * a_stride;
        auto* b = (const char*)x + v * 64;
        char* sums = (char*)c + block * 16 * stride + v * 64;
        const bool two_rows = block + 1 < blocks, two_columns = v + 1 < vectors;
        if (two_rows && two_columns)
          multiply_square(a, a_stride, b, sums, stride, steps);
        else
          TileGemm<true>{{a, a_stride}, b, stride, steps, sums}.run(1 + two_rows, 1 + two_columns);
      }
  }

 private:
  VEC_FN void multiply_square(const char* a, int64_t a_stride, const char* b, char* c, int64_t stride,
                              int steps) {
    char* lower = c + 16 * stride;
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 64, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + 64, stride);
    for (int step = 0; step < steps; step++, a += 64, b += 16 * stride) {
      _tile_loadd(4, a, a_stride);
      _tile_loadd(5, a + 16 * a_stride, a_stride);
      _tile_loadd(6, b, stride);
      _tile_loadd(7, b + 64, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, stride);
    _tile_stored(1, c + 64, stride);
    _tile_stored(2, lower, stride);
    _tile_stored(3, lower + 64, stride);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
