// Products on AMX tiles whose operands are sums of terms in bfloat16: weight rows are the A operand, packed
// pairs of x the B operand.
#pragma once

#include "cpu/gemm/blocked-inl.h"
#include "cpu/gemm/microkernel_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t kTileBytes = 16 * 64;

// Which term of the weights meets which of x. Neighbours share one.
struct TermPair {
  int weights, x;
};

// Of the nine products of three terms, those left out are at most 2^-23 of all together, and of either sign.
template <int kTerms>
constexpr TermPair kTermPairs[] = {{1, 1}, {0, 1}, {0, 2}, {0, 0}, {1, 0}, {2, 0}};
template <>
constexpr TermPair kTermPairs<2>[] = {{1, 1}, {0, 1}, {0, 0}, {1, 0}};
template <>
constexpr TermPair kTermPairs<1>[] = {{0, 0}};

// The products of a step, of two tiles of outputs or of lanes or one of each, in the order in which they are
// made: each has the tile of weights of the one before, or its tile of x.
template <int kTerms, int kOutputTiles, int kLaneTiles>
struct TileVisit {
  static constexpr auto& pairs = kTermPairs<kTerms>;
  static constexpr int kSums = kOutputTiles * kLaneTiles;
  static_assert(kSums <= 2);
  static constexpr int kCount = kSums * (int)(sizeof pairs / sizeof *pairs);

  TermPair terms;
  int sum;

  static constexpr TileVisit at(int place) {
    const int pair = place / kSums, sum = place % kSums;
    return {pairs[pair], pair % 2 ? kSums - 1 - sum : sum};
  }
  constexpr int output() const { return kOutputTiles == 2 ? sum : 0; }
  constexpr int lane() const { return kLaneTiles == 2 ? sum : 0; }
  constexpr bool same_weights(TileVisit other) const {
    return terms.weights == other.terms.weights && output() == other.output();
  }
  constexpr bool same_x(TileVisit other) const { return terms.x == other.terms.x && lane() == other.lane(); }
};

// Rows that are asked for while others are multiplied, a piece of each, one after the other: a processor
// reads memory fastest in order, and loads of a tile would read in sixteen places at once. Strides count
// bytes.
class RowsAhead {
 public:
  // So many lines for each that is multiplied: rows need not begin where a line does, and lie in one more.
  static constexpr int kLinesOfTile = 17;

  RowsAhead(const char* rows, int64_t stride, int64_t row_bytes)
      : line_(line_of(rows)), end_(rows + row_bytes), stride_(stride), row_bytes_(row_bytes) {}

  inline __attribute__((always_inline)) void ask(int lines) {
    for (int i = 0; i < lines; i++) {
      ask_for_line(line_);
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

// Strides count bytes. Lanes and depth are few enough for x to stay in the first cache, so that loads keep
// up.
template <int kTerms>
struct ProductOfTiles {
  static_assert(kTerms <= 3);

  const char* w;  // [step][term], rows; tiles of outputs
  int64_t w_stride, w_vector, w_tile;
  const char* x;  // [step][term][pair]; tiles of lanes
  int64_t x_tile;
  int steps;
  char* c;
  int64_t c_stride;

  // With kAsks the same piece of the rows from `next` on is asked for.
  template <int kOutputTiles, int kLaneTiles, bool kAsks = false>
  inline __attribute__((always_inline)) void run(const char* next = nullptr) const {
    typedef TileVisit<kTerms, kOutputTiles, kLaneTiles> Visit;
    constexpr bool kTwo = Visit::kSums == 2;
    char* const second = c + (kLaneTiles == 2 ? 64 : 16 * c_stride);
    _tile_loadd(0, c, c_stride);
    if constexpr (kTwo) _tile_loadd(1, second, c_stride);
    RowsAhead ahead(kAsks ? next : w, w_stride, steps * kTerms * w_vector);
    for (int step = 0; step < steps; step++) {
      if constexpr (kAsks) ahead.ask(RowsAhead::kLinesOfTile * kOutputTiles);
      multiply_from<Visit, 0>(w + step * kTerms * w_vector, x + step * kTerms * kTileBytes);
    }
    _tile_stored(0, c, c_stride);
    if constexpr (kTwo) _tile_stored(1, second, c_stride);
  }

 private:
  // The products of a step from one of them on.
  template <class Visit, int kNow>
  inline __attribute__((always_inline)) void multiply_from(const char* w_of_step,
                                                           const char* x_of_step) const {
    constexpr Visit now = Visit::at(kNow), before = Visit::at(kNow > 0 ? kNow - 1 : 0);
    if constexpr (kNow == 0 || !now.same_weights(before))
      _tile_loadd(4, w_of_step + now.terms.weights * w_vector + now.output() * w_tile, w_stride);
    if constexpr (kNow == 0 || !now.same_x(before))
      _tile_loadd(5, x_of_step + now.terms.x * kTileBytes + now.lane() * x_tile, 64);
    add_product<now.sum>();
    if constexpr (kNow + 1 < Visit::kCount) multiply_from<Visit, kNow + 1>(w_of_step, x_of_step);
  }
};

// C is [output][vectors * kLanes].
template <int kTerms>
static void multiply_tiles(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
  const int vectors = x.vectors;
  const auto tiles = [&](int v, int n) {
    return ProductOfTiles<kTerms>{(const char*)(w.data + n / 16 * w.tile),
                                  w.stride * 2,
                                  w.vector * 2,
                                  w.tile * 2,
                                  (const char*)(x.data + v * x.apart),
                                  x.apart * 4,
                                  depth / 32,
                                  (char*)(c + (n * vectors + v) * kLanes),
                                  vectors * 64};
  };
  settle_stores();
  // Outputs inside: two tiles of lanes are read again and again, weights once for each two (benches/LOG.md).
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
