// Products on AMX tiles whose operands are sums of terms in bfloat16: weight rows are the A operand, packed
// pairs of x the B operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/product-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Which term of the weights meets which of x. Neighbours share one, which is loaded once.
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

// Tiles of outputs times tiles of lanes, at most two of each. Strides count bytes; those of x are C's, too.
template <int kTerms>
struct ProductOfTiles {
  static_assert(kTerms <= 3);

  const char* w;  // [row][step][term][pair]
  int64_t w_stride;
  const char* x;  // [step][term][pair][lane]
  int64_t x_stride;
  int steps;
  char* c;

  // With two tiles of each, whatever is loaded is multiplied twice, and four sums hide how long a product
  // takes.
  template <int kOutputTiles, int kLaneTiles>
  inline __attribute__((always_inline)) void run() const {
    constexpr bool kLower = kOutputTiles == 2, kRight = kLaneTiles == 2;
    char* const lower_c = c + 16 * x_stride;
    _tile_loadd(0, c, x_stride);
    if constexpr (kRight) _tile_loadd(1, c + 64, x_stride);
    if constexpr (kLower) _tile_loadd(2, lower_c, x_stride);
    if constexpr (kLower && kRight) _tile_loadd(3, lower_c + 64, x_stride);
    for (int step = 0; step < steps; step++)
      add_pairs<0, kLower, kRight>(w + step * kTerms * 64, x + step * kTerms * 16 * x_stride);
    _tile_stored(0, c, x_stride);
    if constexpr (kRight) _tile_stored(1, c + 64, x_stride);
    if constexpr (kLower) _tile_stored(2, lower_c, x_stride);
    if constexpr (kLower && kRight) _tile_stored(3, lower_c + 64, x_stride);
  }

 private:
  // The products of a step from a pair of terms on.
  template <int kPair, bool kLower, bool kRight>
  inline __attribute__((always_inline)) void add_pairs(const char* w_of_step, const char* x_of_step) const {
    constexpr auto& pairs = kTermPairs<kTerms>;
    constexpr TermPair now = pairs[kPair], before = kPair > 0 ? pairs[kPair - 1] : TermPair{-1, -1};
    constexpr bool kLoadsWeights = now.weights != before.weights, kLoadsX = now.x != before.x;
    const char* const weights = w_of_step + now.weights * 64;
    const char* const lanes = x_of_step + now.x * 16 * x_stride;
    if constexpr (kLoadsWeights) _tile_loadd(4, weights, w_stride);
    if constexpr (kLoadsX) _tile_loadd(6, lanes, x_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRight) {
      if constexpr (kLoadsX) _tile_loadd(7, lanes + 64, x_stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kLower) {
      if constexpr (kLoadsWeights) _tile_loadd(5, weights + 16 * w_stride, w_stride);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kRight) _tile_dpbf16ps(3, 5, 7);
    }
    if constexpr (kPair + 1 < (int)(sizeof pairs / sizeof *pairs))
      add_pairs<kPair + 1, kLower, kRight>(w_of_step, x_of_step);
  }
};

// C is [output][vectors * kLanes].
// The next rows are not asked for: small products would take longer, and large ones no less.
template <int kTerms>
static void multiply_tiles(WeightRows<uint16_t> w, int outputs, PackedRows x, int depth, float* c) {
  const int vectors = x.vectors;
  settle_stores();
  // Outputs inside: two tiles of lanes are read again and again, weights once for each two (benches/LOG.md).
  for (int v = 0; v < vectors; v += 2)
    for (int n = 0; n < outputs; n += 32) {
      const ProductOfTiles<kTerms> tiles = {(const char*)(w.data + n * w.stride),
                                            w.stride * 2,
                                            (const char*)(x.data + v * kLanes),
                                            vectors * 64,
                                            depth / 32,
                                            (char*)(c + (n * vectors + v) * kLanes)};
      if (n + 16 < outputs && v + 1 < vectors)
        tiles.template run<2, 2>();
      else if (n + 16 < outputs)
        tiles.template run<2, 1>();
      else if (v + 1 < vectors)
        tiles.template run<1, 2>();
      else
        tiles.template run<1, 1>();
    }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
