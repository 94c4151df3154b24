// The forward pass of a single query position: what a decoding step asks for.
//
// The heads of a group see the same keys, so that one range says what is seen. They are too few to fill the
// lanes of a vector; so here the lanes are keys in the scores, and elements of the head in the output. Tiles
// of keys and the references of the exponentials are as in forward-inl.h.
//
// The products come from Heads (decode_bf16-inl.h, decode_amx-inl.h):
//   kMost                                  heads of a group
//   pack(task, tile)                       the queries, for `scores`
//   scores(tile, k, keys, E, room, asked)  to room.scores, -inf behind the last key
//   values(tile, v, keys, E, room, asked)  adds room.weights times v to tile.o, in the order of ZippedRows
// Each asks for what the product behind it reads: the scores for the values, and the values for the keys of
// the next tile or, behind the last, of the next task, about as many.
#pragma once

#include "cpu/attention/forward-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMostHeads = kLanes;

// What a tile of keys becomes, in the memory that forward-inl.h uses for the same.
template <class Format>
struct HeadRoom {
  static constexpr int kKeys = Format::kKeyTile;
  float *scores, *weights, *products, *keys;

  explicit HeadRoom(const Workspace<Format>& space)
      : scores(space.scores),                        // [head][kKeys]
        weights(scores + kMostHeads * kKeys),        // [head][kKeys / 2] pairs of bfloat16
        products(weights + kMostHeads * kKeys / 2),  // [kKeys][kMostHeads], before they are turned
        keys(space.keys) {}                          // Format::key_floats(E), for copies
  static_assert(kMostHeads * 5 / 2 <= kTileLanes);
};

template <class Heads>
VEC_FN bool is_one_position(const ForwardTask& task) {
  const ScoreSteps steps = {task.scale, task.softcap, nullptr, nullptr};
  return task.n_q == 1 && task.row_begin == 0 && task.row_end >= task.group && task.group <= Heads::kMost &&
         task.E % 32 == 0 && task.mask.kind == MaskKind::none && steps.linear();
}

// Scores of a head -> weights in pairs. Moves the head's reference where that is due, as move_reference().
template <class Format>
VEC_FN void weigh(RowTile& tile, int head, int keys, int E, float scale, const HeadRoom<Format>& room,
                  F* sum) {
  const float* s = room.scores + head * Format::kKeyTile;
  float* weights = room.weights + head * Format::kKeyTile / 2;
  const float old = tile.m[head], top = max_lanes(maximum(s, kLanes, (keys + kLanes - 1) / kLanes)) * scale;
  const bool moves = !(top <= old + kHeadroom);
  const float m = moves ? top : old, base = m == -INFINITY ? 0 : m;
  if (moves) {
    const F alpha = exp2(set1(cpu::exponent_between(old, base)));
    tile.m[head] = m;
    *sum = mul(*sum, alpha);
    for (int e = 0; e < E; e += kLanes) store(tile.o + head * E + e, mul(load(tile.o + head * E + e), alpha));
  }
  const bool ordinary = cpu::is_rounded(base);
  const F factor = set1(ordinary ? scale * kLog2e : scale), shift = set1(ordinary ? -(base * kLog2e) : -base);
  const auto weight = [&](int key) __attribute__((always_inline)) {
    if (key >= keys) return zero();
    const F x = load(s + key);
    if (ordinary) return exp2(fma(x, factor, shift));
    // As in form_exponents(): base is a rounded product, and so must be what it is subtracted from.
    return exp2(mul(add(mul(x, factor), shift), set1(kLog2e)));
  };
  for (int key = 0; key < keys; key += 2 * kLanes) {
    const F low = weight(key), high = weight(key + kLanes);
    *sum = add(*sum, add(low, high));
    store(weights + key / 2, neighbours(low, high));
  }
}

// Rows that are asked for: a line beside each that is used, or all that are left from a row on.
struct AskedRows {
  const uint16_t* rows;
  int64_t stride;
  int count;

  // So many of them are there; more than `most` are not asked for.
  AskedRows(const void* rows, int64_t stride, int64_t left, int most)
      : rows((const uint16_t*)rows), stride(stride), count((int)(left < most ? left : most)) {}

  inline __attribute__((always_inline)) void line(int row, int e) const {
    if (row < count) ask_for_line(rows + row * stride + e);
  }
  void rest(int row, int E) const {
    for (; row < count; row++) prefetch(rows + row * stride, E * sizeof(uint16_t));
  }
};

template <Element kElement>
static void finish_heads(const ForwardTask& task, RowTile& tile, const F* sums) {
  float factor[kTileLanes], lse[kTileLanes], sum[kLanes];
  for (int head = 0; head < task.group; head++) {
    store(sum, sum_groups<kLanes>(sums[head]));
    tile.l[head] = sum[0];
  }
  normalisers(task, tile, factor, lse);
  for (int head = 0; head < task.group; head++) {
    float* o = tile.o + head * task.E;
    const F times = set1(factor[head]);
    for (int e = 0; e < task.E; e += 2 * kLanes)
      store_unzipped(o + e, mul(load(o + e), times), mul(load(o + e + kLanes), times));
    finish_row<kElement>(task, head, o, tile.m[head], tile.l[head], lse[head]);
  }
  if (!task.partial) finish_padding<kElement>(task, task.group, task.row_end);
}

template <class Format, class Heads>
static int64_t attend_position(const ForwardTask& task, void* memory) {
  constexpr int kTile = Format::kKeyTile;
  const int E = task.E, heads = task.group;
  const Workspace<Format> space(memory, E, heads);
  const HeadRoom<Format> room(space);
  RowTile tile;
  place_tile(tile, space.tiles, Format::steps(E), E);
  start_tile(task, tile, 0, heads, 1, E);
  const int64_t first = tile.some_first > task.key_begin ? tile.some_first : task.key_begin;
  const int64_t end = tile.some_last < task.key_end ? tile.some_last + 1 : task.key_end;
  F sums[kMostHeads];
  for (int head = 0; head < heads; head++) sums[head] = zero();
  int64_t computed = 0;
  Format::enter();
  Heads::pack(task, tile);
  for (int64_t begin = first, next; begin < end; begin = next, computed++) {
    next = (begin / kTile + 1) * kTile;
    const int keys = (int)((next < end ? next : end) - begin);
    const KeyRows from = find_rows<uint16_t>(task, begin, keys, kTile, space.gathered);
    const AskedRows values(from.v.data, from.v.stride, keys, keys);
    const AskedRows next_keys =
        next < end ? AskedRows((const uint16_t*)from.k.data + from.k.ahead, from.k.stride, end - next, kTile)
                   : AskedRows(task.next_k, from.k.stride, task.next_k ? end - first : 0, kTile);
    if (begin == first) AskedRows(from.k.data, from.k.stride, keys, keys).rest(0, E);
    Heads::scores(tile, from.k, keys, E, room, values);
    for (int head = 0; head < heads; head++)
      weigh<Format>(tile, head, keys, E, task.scale, room, &sums[head]);
    Heads::values(tile, from.v, keys, E, room, next_keys);
    next_keys.rest(keys, E);
  }
  Format::leave();
  finish_heads<Format::kElement>(task, tile, sums);
  return computed;
}

// Forward, with a form of its own for one position.
template <class Format, class Heads>
static int64_t forward_heads(const ForwardTask& task, void* scratch) {
  return is_one_position<Heads>(task) ? attend_position<Format, Heads>(task, scratch)
                                      : forward<Format>(task, scratch);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
