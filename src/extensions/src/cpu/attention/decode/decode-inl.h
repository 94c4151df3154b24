// Attention of a single query position, as in a decode step. bfloat16 only; other types take forward().
//
// The query heads of a GQA group see the same keys. They are too few to fill the lanes of a vector: here the
// lanes are keys in the scores, and elements of the head in the output. Key tiles and m are as in
// forward-inl.h.
//
// Products (decode_bf16-inl.h, decode_amx-inl.h) are
//   kMaxHeads                                    query heads of a GQA group
//   kReadsAddresses                              whether rows of several pages are read in place
//   pack(task, tile)                             the queries, for `scores`
//   scores(tile, k, keys, E, scratch, prefetch)  to scratch.scores, -inf after the last key
//   values(tile, v, keys, E, scratch, prefetch)  adds scratch.p times v to tile.o, in the order of ZippedRows
// Each product prefetches the operand of the next one: `scores` the values, `values` the keys of the next
// tile or, at the last tile, of the next task.
#pragma once

#include "cpu/attention/forward-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kDecodeHeads = kLanes;

// Scratch of a key tile, in the memory of a Workspace.
template <class Operands>
struct DecodeScratch {
  static constexpr int kKeys = Operands::kKeyTile;
  float *scores, *p, *products, *keys;

  explicit DecodeScratch(const Workspace<Operands>& space)
      : scores(space.scores),                    // [head][kKeys]
        p(scores + kDecodeHeads * kKeys),        // [head][kKeys / 2] pairs of bfloat16
        products(p + kDecodeHeads * kKeys / 2),  // [kKeys][kDecodeHeads], before they are transposed
        keys(space.keys) {}                      // Operands::prepared_floats(E), for copies
  static_assert(kDecodeHeads * 5 / 2 <= kTileLanes);
};

template <class Products>
VEC_FN bool can_decode(const ForwardTask& task) {
  const ScoreTransform transform = {task.scale, task.softcap, nullptr, nullptr, nullptr};
  return task.n_q == 1 && task.row_begin == 0 && task.row_end >= task.gqa_heads &&
         task.gqa_heads <= Products::kMaxHeads && task.E % 32 == 0 && task.mask.kind == MaskKind::none &&
         transform.is_scale_only();
}

// The online softmax of one head: scores become probabilities in pairs; m, `sum` and O are updated.
template <class Operands>
VEC_FN void softmax_head(QueryTile& tile, int head, int keys, int E, float scale,
                         const DecodeScratch<Operands>& scratch, F* sum) {
  const float* s = scratch.scores + head * Operands::kKeyTile;
  float* p = scratch.p + head * Operands::kKeyTile / 2;
  const float old = tile.m[head], top = max_lanes(maximum(s, kLanes, (keys + kLanes - 1) / kLanes)) * scale;
  const LazyMaximum next = lazy_maximum(old, top);
  const float base = next.base;
  if (next.moves) {
    const F alpha = exp2(set1(cpu::exponent_between(old, base)));
    tile.m[head] = next.m;
    *sum = mul(*sum, alpha);
    for (int e = 0; e < E; e += kLanes) store(tile.o + head * E + e, mul(load(tile.o + head * E + e), alpha));
  }
  const bool rounded = cpu::uses_rounded_product(base);
  const F factor = set1(rounded ? scale * kLog2e : scale), shift = set1(rounded ? -(base * kLog2e) : -base);
  const auto weight = [&](int key) __attribute__((always_inline)) {
    if (key >= keys) return zero();
    const F x = load(s + key);
    if (rounded) return exp2(fma(x, factor, shift));
    // As in precompute_exponents(): base is a rounded product, so the score is rounded before the
    // subtraction.
    return exp2(mul(add(mul(x, factor), shift), set1(kLog2e)));
  };
  for (int key = 0; key < keys; key += 2 * kLanes) {
    const F low = weight(key), high = weight(key + kLanes);
    *sum = add(*sum, add(low, high));
    store(p + key / 2, neighbours(low, high));
  }
}

template <class Operands>
static void hide_absent_keys(const DecodeScratch<Operands>& scratch, int heads, int keys,
                             const uint8_t* absent) {
  for (int head = 0; head < heads; head++)
    for (int key = 0; key < keys; key++)
      if (absent[key]) scratch.scores[head * Operands::kKeyTile + key] = -INFINITY;
}

// Rows to prefetch: line() between the loads of the current product, rest() for all that are left.
struct PrefetchRows {
  const uint16_t* rows;
  int64_t stride;
  int count;
  const uint16_t* const* addresses = nullptr;  // of each row, instead of `rows` and `stride`

  // The first of `left` rows, at most `max`.
  PrefetchRows(const void* rows, int64_t stride, int64_t left, int max)
      : rows((const uint16_t*)rows), stride(stride), count((int)(left < max ? left : max)) {}

  PrefetchRows(const uint16_t* const* addresses, int count)
      : rows(nullptr), stride(0), count(count), addresses(addresses) {}

  template <bool kByAddress>
  inline __attribute__((always_inline)) void line(int row, int e) const {
    if (row < count) prefetch_l2((kByAddress ? addresses[row] : rows + row * stride) + e);
  }
  void rest(int row, int E) const {
    for (; row < count; row++)
      prefetch(addresses ? addresses[row] : rows + row * stride, E * sizeof(uint16_t));
  }
};

// The rows of a key tile in pages, by address.
template <int kTile>
struct TileAddresses {
  const uint16_t *k[kTile], *v[kTile];
  uint8_t absent[kTile];
  bool any_absent;
  int count;

  // Of the keys from `begin` on, in the tile of `begin` and below `end`. Rows of absent pages are `zeros`.
  void find(const ForwardTask& task, int64_t begin, int64_t end, const uint16_t* zeros) {
    const int64_t left = (begin / kTile + 1) * kTile - begin;
    count = (int)(begin + left < end ? left : end > begin ? end - begin : 0);
    const PageTable& table = task.pages;
    PagedRows<uint16_t>{table, (const uint16_t*)task.k, table.k_stride, task.k_row_stride}.point(begin, count,
                                                                                                 zeros, k);
    PagedRows<uint16_t>{table, (const uint16_t*)task.v, table.v_stride, task.v_row_stride}.point(begin, count,
                                                                                                 zeros, v);
    any_absent = mark_absent(table, begin, count, absent);
  }

  KeyRows rows() const { return {{nullptr, 0, 0, k}, {nullptr, 0, 0, v}, any_absent ? absent : nullptr}; }
};

template <Element kElement>
static void store_heads(const ForwardTask& task, QueryTile& tile, const F* sums) {
  float factor[kTileLanes], lse[kTileLanes], sum[kLanes];
  for (int head = 0; head < task.gqa_heads; head++) {
    store(sum, sum_neighbours<kLanes>(sums[head]));
    tile.l[head] = sum[0];
  }
  output_factors(task, tile, factor, lse);
  for (int head = 0; head < task.gqa_heads; head++) {
    float* o = tile.o + head * task.E;
    const F times = set1(factor[head]);
    for (int e = 0; e < task.E; e += 2 * kLanes)
      store_unzipped(o + e, mul(load(o + e), times), mul(load(o + e + kLanes), times));
    store_row<kElement>(task, head, o, tile.m[head], tile.l[head], lse[head]);
  }
  if (!task.partial) store_padding<kElement>(task, task.gqa_heads, task.row_end);
}

template <class Operands, class Products>
static int64_t decode(const ForwardTask& task, void* memory) {
  constexpr int kTile = Operands::kKeyTile;
  const int E = task.E, heads = task.gqa_heads;
  const Workspace<Operands> space(memory, E, heads);
  const DecodeScratch<Operands> scratch(space);
  QueryTile tile;
  bind_tile_memory(tile, space.tiles, Operands::steps(E), E);
  start_tile(task, tile, 0, heads, 1, E);
  const int64_t first = tile.any_first > task.key_begin ? tile.any_first : task.key_begin;
  const int64_t end = tile.any_last < task.key_end ? tile.any_last + 1 : task.key_end;
  F sums[kDecodeHeads];
  for (int head = 0; head < heads; head++) sums[head] = zero();
  // Small pages are read in place; of a large one, a tile is rows with one stride.
  const bool by_address = Products::kReadsAddresses && task.pages.ids && task.pages.size < kTile;
  TileAddresses<kTile> pages[2];
  if (by_address) {
    memset(space.gathered, 0, E * sizeof(uint16_t));
    pages[0].find(task, first, end, (const uint16_t*)space.gathered);
  }
  int64_t computed = 0;
  Operands::enter();
  Products::pack(task, tile);
  for (int64_t begin = first, next; begin < end; begin = next, computed++) {
    next = (begin / kTile + 1) * kTile;
    const int keys = (int)((next < end ? next : end) - begin);
    const TileAddresses<kTile>& here = pages[computed % 2];
    TileAddresses<kTile>& there = pages[(computed + 1) % 2];
    if (by_address) there.find(task, next, end, (const uint16_t*)space.gathered);
    const KeyRows from =
        by_address ? here.rows() : find_rows<uint16_t>(task, begin, keys, kTile, space.gathered);
    const PrefetchRows values =
        by_address ? PrefetchRows(here.v, keys) : PrefetchRows(from.v.data, from.v.stride, keys, keys);
    const PrefetchRows next_keys =
        by_address   ? PrefetchRows(there.k, there.count)
        : next < end ? PrefetchRows((const uint16_t*)from.k.data + from.k.prefetch_distance, from.k.stride,
                                    end - next, kTile)
                     : PrefetchRows(task.next_k, from.k.stride, task.next_k ? end - first : 0, kTile);
    if (begin == first)
      (by_address ? PrefetchRows(here.k, keys) : PrefetchRows(from.k.data, from.k.stride, keys, keys))
          .rest(0, E);
    Products::scores(tile, from.k, keys, E, scratch, values);
    if (from.absent) hide_absent_keys(scratch, heads, keys, from.absent);
    for (int head = 0; head < heads; head++)
      softmax_head<Operands>(tile, head, keys, E, task.scale, scratch, &sums[head]);
    Products::values(tile, from.v, keys, E, scratch, next_keys);
    next_keys.rest(keys, E);
  }
  Operands::leave();
  store_heads<Operands::kElement>(task, tile, sums);
  return computed;
}

// decode() if it can run the task, else forward().
template <class Operands, class Products>
static int64_t forward_or_decode(const ForwardTask& task, void* scratch) {
  return can_decode<Products>(task) ? decode<Operands, Products>(task, scratch)
                                    : forward<Operands>(task, scratch);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
