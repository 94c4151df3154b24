// The microkernel of blocked products on AMX tiles: rows of weights are the A operand, packed pairs of x the
// B operand. Both may be split bf16.
#pragma once

#include "cpu/gemm/blocked-inl.h"
#include "cpu/gemm/microkernel_amx-inl.h"
#include "cpu/gemm/split_bf16-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t kTileBytes = 16 * 64;

// The part of the weights and the part of x in a product. Neighbours in the list share one of them.
struct PartPair {
  int weights, x;
};

// Of the nine products of three parts, the three left out are at most 2^-23 of the sum, and of either sign.
template <int kParts>
constexpr PartPair kPartPairs[] = {{1, 1}, {0, 1}, {0, 2}, {0, 0}, {1, 0}, {2, 0}};
template <>
constexpr PartPair kPartPairs<2>[] = {{1, 1}, {0, 1}, {0, 0}, {1, 0}};
template <>
constexpr PartPair kPartPairs<1>[] = {{0, 0}};

// The tile products of a step, with two tiles of outputs or two of lanes or one of each, in order: each
// shares the tile of weights or the tile of x with the product before it.
template <int kParts, int kOutputTiles, int kLaneTiles>
struct TileVisit {
  static constexpr auto& pairs = kPartPairs<kParts>;
  static constexpr int kSums = kOutputTiles * kLaneTiles;
  static_assert(kSums <= 2);
  static constexpr int kCount = kSums * (int)(sizeof pairs / sizeof *pairs);

  PartPair parts;
  int sum;

  static constexpr TileVisit at(int place) {
    const int pair = place / kSums, sum = place % kSums;
    return {pairs[pair], pair % 2 ? kSums - 1 - sum : sum};
  }
  constexpr int output() const { return kOutputTiles == 2 ? sum : 0; }
  constexpr int lane() const { return kLaneTiles == 2 ? sum : 0; }
  constexpr bool same_weights(TileVisit other) const {
    return parts.weights == other.parts.weights && output() == other.output();
  }
  constexpr bool same_x(TileVisit other) const { return parts.x == other.parts.x && lane() == other.lane(); }
};

// Prefetches rows while others are multiplied, a piece of each, row by row: memory is read fastest in order,
// and loads of a tile would read in sixteen places at once. Strides count bytes.
class RowPrefetch {
 public:
  // Lines to prefetch for each tile: unaligned rows lie in one more line.
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

// Strides count bytes. Lanes and depth are few enough for x to stay in the first-level cache.
template <int kParts>
struct TileMicrokernel {
  static_assert(kParts <= 3);

  const char* w;  // [step][part], rows; tiles of outputs
  int64_t w_stride, w_vector, w_tile;
  const char* x;  // [step][part][pair]; tiles of lanes
  int64_t x_tile;
  int steps;
  char* c;
  int64_t c_stride;

  // With kPrefetch, the same piece of the rows from `next` on is prefetched.
  template <int kOutputTiles, int kLaneTiles, bool kPrefetch = false>
  inline __attribute__((always_inline)) void run(const char* next = nullptr) const {
    typedef TileVisit<kParts, kOutputTiles, kLaneTiles> Visit;
    constexpr bool kTwo = Visit::kSums == 2;
    char* const second = c + (kLaneTiles == 2 ? 64 : 16 * c_stride);
    _tile_loadd(0, c, c_stride);
    if constexpr (kTwo) _tile_loadd(1, second, c_stride);
    RowPrefetch ahead(kPrefetch ? next : w, w_stride, steps * kParts * w_vector);
    for (int step = 0; step < steps; step++) {
      if constexpr (kPrefetch) ahead.prefetch(RowPrefetch::kLinesOfTile * kOutputTiles);
      multiply_from<Visit, 0>(w + step * kParts * w_vector, x + step * kParts * kTileBytes);
    }
    _tile_stored(0, c, c_stride);
    if constexpr (kTwo) _tile_stored(1, second, c_stride);
  }

 private:
  // The products of a step from product kNow on.
  template <class Visit, int kNow>
  inline __attribute__((always_inline)) void multiply_from(const char* w_of_step,
                                                           const char* x_of_step) const {
    constexpr Visit now = Visit::at(kNow), before = Visit::at(kNow > 0 ? kNow - 1 : 0);
    if constexpr (kNow == 0 || !now.same_weights(before))
      _tile_loadd(4, w_of_step + now.parts.weights * w_vector + now.output() * w_tile, w_stride);
    if constexpr (kNow == 0 || !now.same_x(before))
      _tile_loadd(5, x_of_step + now.parts.x * kTileBytes + now.lane() * x_tile, 64);
    add_product<now.sum>();
    if constexpr (kNow + 1 < Visit::kCount) multiply_from<Visit, kNow + 1>(w_of_step, x_of_step);
  }
};

// C is [output][vectors * kLanes].
template <int kParts>
static void multiply_on_tiles(WeightBlock<uint16_t> w, int outputs, PackedPanel x, int depth, float* c) {
  const int vectors = x.vectors;
  const auto tiles = [&](int v, int n) {
    return TileMicrokernel<kParts>{(const char*)(w.data + n / 16 * w.tile),
                                   w.stride * 2,
                                   w.vector * 2,
                                   w.tile * 2,
                                   (const char*)(x.data + v * x.apart),
                                   x.apart * 4,
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
    return (const char*)(w.data + (n < outputs ? n * w.stride : w.ahead));
  };
  int n = 0;
  for (; n + 16 < outputs; n += 32) {
    if (w.ahead == 0)
      tiles(v, n).template run<2, 1>();
    else
      tiles(v, n).template run<2, 1, true>(rows_from(n + 32));
  }
  if (n >= outputs) return;
  if (w.ahead == 0)
    tiles(v, n).template run<1, 1>();
  else
    tiles(v, n).template run<1, 1, true>(rows_from(n + 16));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
