// Attention of a single query position, as in a decode step. bfloat16 only; other types take forward().
//
// The query heads of a GQA group see the same keys. They are too few to fill the lanes of a vector: here the
// lanes are keys in the scores, and elements of the head in the output. Key tiles and m are as in
// forward-inl.h.
//
// Products (decode_bf16-inl.h, decode_amx-inl.h) are
//   kMaxHeads                                    query heads of a GQA group
//   pack(task, tile)                             the queries, for `scores`
//   scores(tile, k, keys, E, scratch, prefetch)  to scratch.scores, -inf after the last key
//   values(tile, v, keys, E, scratch, prefetch)  adds scratch.p times v to tile.o, in the order of ZippedRows
// While a product runs, memory arrives for a later one: the values of the tile during its scores, and the
// keys of the next tile, or task, during the values. In pages, where hardware does not predict what is next,
// keys and values arrive a whole tile ahead (PrefetchShare).
#pragma once

#include "cpu/attention/decode/tile_rows-inl.h"
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
  return task.n_q == 1 && !task.fixed_order && task.row_begin == 0 && task.row_end >= task.gqa_heads &&
         task.gqa_heads <= Products::kMaxHeads && task.E % 32 == 0 && task.mask.kind == MaskKind::none &&
         transform.is_scale_only();
}

// The sums of a tile's heads, in lanes: in memory of O that kDecodeHeads heads leave free.
VEC_FN F* head_sums(const QueryTile& tile, int E) { return (F*)(tile.o + kDecodeHeads * E); }

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
  const Workspace<Operands> space(memory, E, (int64_t)task.kv_heads * kTileLanes);
  const DecodeScratch<Operands> scratch(space);
  QueryTile* const tiles = space.headers;  // of the KV heads
  Operands::enter();
  for (int h = 0; h < task.kv_heads; h++) {
    space.bind(h);
    start_tile(task, tiles[h], 0, heads, 1, E);
    memset(head_sums(tiles[h], E), 0, heads * sizeof(F));
    Products::pack(of_kv_head<Operands::kElement>(task, h), tiles[h]);
  }
  const int64_t first = tiles[0].any_first > task.key_begin ? tiles[0].any_first : task.key_begin;
  const int64_t end = tiles[0].any_last < task.key_end ? tiles[0].any_last + 1 : task.key_end;
  KeysAndValues<kTile> tiles_of_keys[2];
  PrefetchShare<kTile> k_share, v_share;
  int64_t computed = 0;
  if (first < end) tiles_of_keys[0].find(task, task.k, task.v, task.pages.ids, first, end);
  const bool in_pages = task.pages.ids;
  const KeysAndValues<kTile>& start = tiles_of_keys[0];
  if (!in_pages) PrefetchRows{start.k.rows, start.count}.rest(0, E);
  for (int h = 0; in_pages && h < task.kv_heads; h++) {
    k_share.of(start.k, start.count, h, task.kv_heads, task.k_head_stride).rest(0, E);
    v_share.of(start.v, start.count, h, task.kv_heads, task.v_head_stride).rest(0, E);
  }
  int number = 0;
  for (int64_t begin = first, next; begin < end; begin = next, number++) {
    next = (begin / kTile + 1) * kTile;
    KeysAndValues<kTile>& here = tiles_of_keys[number % 2];
    KeysAndValues<kTile>& there = tiles_of_keys[(number + 1) % 2];
    if (next < end)
      there.find(task, task.k, task.v, task.pages.ids, next, end);
    else if (task.next_k)
      there.find(task, task.next_k, task.next_v, task.next_ids, task.next_begin, task.next_end);
    else
      there.count = 0;
    for (int h = 0; h < task.kv_heads; h++, computed++) {
      QueryTile& tile = tiles[h];
      PrefetchRows during_scores = {here.v.rows, here.count}, during_values = {there.k.rows, there.count};
      if (in_pages) {
        during_scores = k_share.of(there.k, there.count, h, task.kv_heads, task.k_head_stride);
        during_values = v_share.of(there.v, there.count, h, task.kv_heads, task.v_head_stride);
      }
      Products::scores(tile, here.k.rows, here.count, E, scratch, during_scores);
      during_scores.rest(here.count, E);
      if (here.any_absent) hide_absent_keys(scratch, heads, here.count, here.marks);
      for (int head = 0; head < heads; head++)
        softmax_head<Operands>(tile, head, here.count, E, task.scale, scratch, &head_sums(tile, E)[head]);
      Products::values(tile, here.v.rows, here.count, E, scratch, during_values);
      during_values.rest(here.count, E);
      here.advance(task.k_head_stride, task.v_head_stride);
    }
  }
  Operands::leave();
  for (int h = 0; h < task.kv_heads; h++)
    store_heads<Operands::kElement>(of_kv_head<Operands::kElement>(task, h), tiles[h],
                                    head_sums(tiles[h], E));
  return computed;
}

// decode() if it can run the task, else forward().
template <class Operands, class Products>
static int64_t forward_or_decode(const ForwardTask& task, void* scratch) {
  return can_decode<Products>(task) ? decode<Operands, Products>(task, scratch)
                                    : forward<Operands>(task, scratch);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
