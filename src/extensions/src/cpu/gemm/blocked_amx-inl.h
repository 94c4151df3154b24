// The microkernel of blocked products on AMX tiles: rows of weights are the A operand, packed pairs of x the
// B operand. Both may be split bf16.
#pragma once

#include "cpu/gemm/blocked-inl.h"
#include "cpu/gemm/split_bf16-inl.h"
#include "cpu/gemm/tiles_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t kTileBytes = 16 * 64;

// The parts of split bf16 that a tile product multiplies. Neighbours in kPartPairs share one of them.
struct PartPair {
  int weights, x;
};

// Of the nine products of three parts, mid * lo, lo * mid and lo * lo are left out: at most 2^-23 of |x| |w|
// for each element, of either sign.
template <int kParts>
constexpr PartPair kPartPairs[] = {{1, 1}, {0, 1}, {0, 2}, {0, 0}, {1, 0}, {2, 0}};
template <>
constexpr PartPair kPartPairs<2>[] = {{1, 1}, {0, 1}, {0, 0}, {1, 0}};
template <>
constexpr PartPair kPartPairs<1>[] = {{0, 0}};

// The order of the tile products of one step, for 1 x 1, 2 x 1 or 1 x 2 tiles of outputs by lanes:
// consecutive products share an operand, so each loads one tile.
template <int kParts, int kOutputTiles, int kLaneTiles>
struct TileProduct {
  static constexpr auto& pairs = kPartPairs<kParts>;
  static constexpr int kSums = kOutputTiles * kLaneTiles;
  static_assert(kSums <= 2);
  static constexpr int kCount = kSums * (int)(sizeof pairs / sizeof *pairs);

  PartPair parts;
  int sum;

  static constexpr TileProduct at(int index) {
    const int pair = index / kSums, sum = index % kSums;
    return {pairs[pair], pair % 2 ? kSums - 1 - sum : sum};
  }
  constexpr int output() const { return kOutputTiles == 2 ? sum : 0; }
  constexpr int lane() const { return kLaneTiles == 2 ? sum : 0; }
  constexpr bool same_weights(TileProduct other) const {
    return parts.weights == other.parts.weights && output() == other.output();
  }
  constexpr bool same_x(TileProduct other) const {
    return parts.x == other.parts.x && lane() == other.lane();
  }
};

// Prefetches a range of columns of later rows while earlier ones are multiplied, row by row: memory is
// fastest in order, and the loads of a tile read 16 rows at once. Strides count bytes.
class RowPrefetch {
 public:
  // Lines to prefetch for each tile of 16 rows: 16, and one more because rows are not aligned.
  static constexpr int kLinesOfTile = 17;

  RowPrefetch(const char* rows, int64_t stride, int64_t row_bytes)
      : line_(line_of(rows)), end_(rows + row_bytes), stride_(stride), row_bytes_(row_bytes) {}

  inline __attribute__((always_inline)) void prefetch(int lines) {
    for (int i = 0; i < lines; i++) {
      prefetch_l2(line_);
      line_ += 64;
      if (line_ < end_) continue;
      end_ += stride_;
      line_ = line_of(end_ - row_bytes_);
    }
  }

 private:
  static const char* line_of(const char* p) { return (const char*)((uintptr_t)p & ~(uintptr_t)63); }

  const char *line_, *end_;
  int64_t stride_, row_bytes_;
};

// Strides count bytes. KC is small enough for x to stay in the first-level cache.
template <int kParts>
struct TileMicrokernel {
  static_assert(kParts <= 3);

  const char* w;  // [step][part] of each row; tiles of outputs
  int64_t w_stride, w_vector, w_tile;
  const char* x;  // [step][part][pair]; tiles of lanes
  int64_t x_tile;
  int steps;
  char* c;
  int64_t c_stride;

  // With kPrefetch, prefetches the same columns of the rows from `next` on.
  template <int kOutputTiles, int kLaneTiles, bool kPrefetch = false>
  inline __attribute__((always_inline)) void run(const char* next = nullptr) const {
    typedef TileProduct<kParts, kOutputTiles, kLaneTiles> Product;
    constexpr bool kTwo = Product::kSums == 2;
    char* const second = c + (kLaneTiles == 2 ? 64 : 16 * c_stride);
    _tile_loadd(0, c, c_stride);
    if constexpr (kTwo) _tile_loadd(1, second, c_stride);
    RowPrefetch later_rows(kPrefetch ? next : w, w_stride, steps * kParts * w_vector);
    for (int step = 0; step < steps; step++) {
      if constexpr (kPrefetch) later_rows.prefetch(RowPrefetch::kLinesOfTile * kOutputTiles);
      multiply_from<Product, 0>(w + step * kParts * w_vector, x + step * kParts * kTileBytes);
    }
    _tile_stored(0, c, c_stride);
    if constexpr (kTwo) _tile_stored(1, second, c_stride);
  }

 private:
  // The products of a step from number kIndex on.
  template <class Product, int kIndex>
  inline __attribute__((always_inline)) void multiply_from(const char* w_of_step,
                                                           const char* x_of_step) const {
    constexpr Product now = Product::at(kIndex), before = Product::at(kIndex > 0 ? kIndex - 1 : 0);
    if constexpr (kIndex == 0 || !now.same_weights(before))
      _tile_loadd(4, w_of_step + now.parts.weights * w_vector + now.output() * w_tile, w_stride);
    if constexpr (kIndex == 0 || !now.same_x(before))
      _tile_loadd(5, x_of_step + now.parts.x * kTileBytes + now.lane() * x_tile, 64);
    add_product<now.sum>();
    if constexpr (kIndex + 1 < Product::kCount) multiply_from<Product, kIndex + 1>(w_of_step, x_of_step);
  }
};

// C is [output][vectors * kLanes].
template <int kParts>
static void multiply_on_tiles(WeightBlock<uint16_t> w, int outputs, PackedPanel x, int depth, float* c) {
  const int vectors = x.vectors;
  const auto tiles = [&](int v, int n) {
    return TileMicrokernel<kParts>{(const char*)(w.data + n / 16 * w.tile_stride),
                                   w.stride * 2,
                                   w.vector_stride * 2,
                                   w.tile_stride * 2,
                                   (const char*)(x.data + v * x.vector_stride),
                                   x.vector_stride * 4,
                                   depth / 32,
                                   (char*)(c + (n * vectors + v) * kLanes),
                                   vectors * 64};
  };
  compiler_barrier();
  // The inner loop is over outputs: two tiles of lanes stay, weights are read once for them (benches/LOG.md).
  int v = 0;
  for (; v + 1 < vectors; v += 2)
    for (int n = 0; n < outputs; n += 16) tiles(v, n).template run<1, 2>();
  if (v == vectors) return;
  const auto rows_from = [&](int n) {
    return (const char*)(w.data + (n < outputs ? n * w.stride : w.prefetch_distance));
  };
  int n = 0;
  for (; n + 16 < outputs; n += 32) {
    if (w.prefetch_distance == 0)
      tiles(v, n).template run<2, 1>();
    else
      tiles(v, n).template run<2, 1, true>(rows_from(n + 32));
  }
  if (n >= outputs) return;
  if (w.prefetch_distance == 0)
    tiles(v, n).template run<1, 1>();
  else
    tiles(v, n).template run<1, 1, true>(rows_from(n + 16));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
