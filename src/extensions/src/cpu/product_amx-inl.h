// Many rows times weights on AMX tiles: weight rows are the A operand, packed pairs of x the B operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/product_pairs-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxProduct : PairsProduct {
  static constexpr int kDepthUnit = 32;
  static constexpr int kOutputUnit = 16;
  static constexpr bool kAsksAhead = false;
  static constexpr int kTaskOutputs = 384;  // x streams by once for each so many
  // MLX's arrays do not begin where a cache line does, so that every row of a tile of weights lies in two.
  // Many rows of x pay for a copy that does better.
  static constexpr int kInPlaceTiles = 2;
  static constexpr int kDepth = 512;  // between two visits of the sums

  VEC_FN void enter() { WithTiles::enter(); }
  VEC_FN void leave() { WithTiles::leave(); }

  // C is [output][vectors * kLanes].
  // The next rows are not asked for: small products would take longer, and large ones no less.
  static void multiply(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
    const int vectors = x.vectors;
    const TileRows rows = {w.stride * 2, vectors * 64};
    settle_stores();
    for (int n = 0; n < outputs; n += 32)
      for (int v = 0; v < vectors; v += 2) {
        const auto* weights = (const char*)(w.data + n * w.stride);
        const auto* lanes = (const char*)(x.data + v * kLanes);
        auto* sums = (char*)(c + (n * vectors + v) * kLanes);
        if (n + 16 < outputs && v + 1 < vectors)
          multiply_tiles<2, 2>(rows, weights, lanes, depth / 32, sums);
        else if (n + 16 < outputs)
          multiply_tiles<2, 1>(rows, weights, lanes, depth / 32, sums);
        else if (v + 1 < vectors)
          multiply_tiles<1, 2>(rows, weights, lanes, depth / 32, sums);
        else
          multiply_tiles<1, 1>(rows, weights, lanes, depth / 32, sums);
      }
  }

 private:
  struct TileRows {
    int64_t weights, lanes;  // bytes from a row of a tile to the next; C's are as far apart as those of x
  };

  // Tiles of outputs times tiles of lanes. With two of each, whatever is loaded is multiplied twice, and four
  // sums hide how long a product takes.
  template <int kOutputTiles, int kLaneTiles>
  VEC_FN void multiply_tiles(TileRows rows, const char* w, const char* x, int steps, char* c) {
    const int64_t lower = 16 * rows.weights;
    char* const lower_c = c + 16 * rows.lanes;
    _tile_loadd(0, c, rows.lanes);
    if constexpr (kLaneTiles == 2) _tile_loadd(1, c + 64, rows.lanes);
    if constexpr (kOutputTiles == 2) _tile_loadd(2, lower_c, rows.lanes);
    if constexpr (kOutputTiles == 2 && kLaneTiles == 2) _tile_loadd(3, lower_c + 64, rows.lanes);
    for (int step = 0; step < steps; step++, w += 64, x += 16 * rows.lanes) {
      _tile_loadd(4, w, rows.weights);
      _tile_loadd(6, x, rows.lanes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kLaneTiles == 2) {
        _tile_loadd(7, x + 64, rows.lanes);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (kOutputTiles == 2) {
        _tile_loadd(5, w + lower, rows.weights);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (kLaneTiles == 2) _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, c, rows.lanes);
    if constexpr (kLaneTiles == 2) _tile_stored(1, c + 64, rows.lanes);
    if constexpr (kOutputTiles == 2) _tile_stored(2, lower_c, rows.lanes);
    if constexpr (kOutputTiles == 2 && kLaneTiles == 2) _tile_stored(3, lower_c + 64, rows.lanes);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
