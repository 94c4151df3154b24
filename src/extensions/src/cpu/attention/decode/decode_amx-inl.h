// A single query position on AMX tiles: for the scores keys are the A operand as they lie in memory, for the
// output the weights are, and values zipped by pairs of keys the B operand.
#pragma once

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/decode/decode_bf16-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct TileHeads {
  static constexpr int kMost = kMostHeads;
  typedef HeadRoom<AmxFormat> Room;

  static void pack(const ForwardTask& task, RowTile& tile) { pack_queries<AmxFormat>(task, tile); }

  static void scores(const RowTile& tile, Rows k, int keys, int E, const Room& room, const AskedRows& asked) {
    const int whole = keys / 16 * 16, left = keys - whole;
    const auto* rows = (const uint16_t*)k.data;
    tile_gemm<false>({rows, k.stride * 2}, whole / 16, tile.q, 1, E / 32, room.products);
    if (left > 0) {  // a tile reads 16 rows
      for (int key = 0; key < 16; key++)
        for (int e = 0; e < E; e += 32)
          store(room.keys + (key * E + e) / 2,
                key < left ? load_pairs(rows + (whole + key) * k.stride + e, 32) : zero());
      tile_gemm<false>({room.keys, E * 2}, 1, tile.q, 1, E / 32, room.products + whole * kMostHeads);
    }
    for (int key = 0; key < keys; key += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = load(room.products + (key + j) * kMostHeads);
      transpose(block);
      for (int head = 0; head < tile.rows; head++)
        store(room.scores + head * Room::kKeys + key, first_or(keys - key, block[head], -INFINITY));
    }
    asked.rest(0, E);
  }

  static void values(RowTile& tile, Rows v, int keys, int E, const Room& room, const AskedRows& asked) {
    const int steps = (keys + 31) / 32;
    const auto* row = (const uint16_t*)v.data;
    for (int key = 0; key < 32 * steps; key += 2, row += 2 * v.stride)
      for (int e = 0; e < E; e += 32) {
        float* pairs = room.keys + key / 2 * E + e;
        if (key >= keys) {
          store(pairs, zero());
          store(pairs + 16, zero());
          continue;
        }
        const ZippedRows zipped(row + e, key + 1 < keys ? row + v.stride + e : nullptr);
        asked.line(key, e);
        asked.line(key + 1, e);
        store(pairs, zipped.low);
        store(pairs + 16, zipped.high);
      }
    tile_gemm<true>({room.weights, Room::kKeys * 2}, 1, room.keys, E / 16, steps, tile.o);
  }
};

// A tile computes as many heads as it has columns; a few take less time in pairs.
constexpr int kFewHeads = 2;

static int64_t forward_heads_on_tiles(const ForwardTask& task, void* scratch) {
  typedef PairHeads<AmxFormat> Few;
  if (task.group <= kFewHeads && is_one_position<Few>(task))
    return attend_position<AmxFormat, Few>(task, scratch);
  return forward_heads<AmxFormat, TileHeads>(task, scratch);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
