// A single query position with products of pairs of bfloat16.
#pragma once

#include "cpu/attention/bf16_operands-inl.h"
#include "cpu/attention/decode/decode-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// For the scores, four pairs of a key meet those of four heads at a time, one in each quarter of a vector;
// for the output, 32 elements of two values meet the weights of every head.
template <class Format>
struct PairHeads {
  static constexpr int kMost = 8;
  typedef HeadRoom<Format> Room;

  // [four pairs][head of four or eight][pair], zeros for heads that are missing
  static void pack(const ForwardTask& task, RowTile& tile) {
    const int heads = task.group <= 4 ? 4 : 8;
    memset(tile.q, 0, sizeof(float) * heads * task.E / 2);
    for (int head = 0; head < task.group; head++)
      for (int e = 0; e < task.E; e += 8)
        memcpy(tile.q + e / 2 * heads + 4 * head, (const uint16_t*)task.q + query_offset(task, head) + e, 16);
  }

  static void scores(const RowTile& tile, Rows k, int keys, int E, const Room& room, const AskedRows& asked) {
    for (int key = 0; key < keys; key += kLanes) {
      if (tile.rows <= 4)
        scores_of<1>(tile.q, k, key, keys, E, room.scores, asked);
      else
        scores_of<2>(tile.q, k, key, keys, E, room.scores, asked);
    }
  }

  static void values(RowTile& tile, Rows v, int keys, int E, const Room& room, const AskedRows& asked) {
    values_of<kMost>(tile, v, keys, E, room.weights, asked);
  }

 private:
  // kLanes keys and kFours times four heads.
  template <int kFours>
  VEC_FN void scores_of(const float* queries, Rows k, int key, int keys, int E, float* scores,
                        const AskedRows& asked) {
    F sums[kFours][4];  // of four heads, for each four keys
#pragma GCC unroll 4
    for (int four = 0; four < 4; four++) {
      const uint16_t* rows[4];
      F s[kFours][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const int at = key + 4 * four + j;
        rows[j] = (const uint16_t*)k.data + (at < keys ? at : keys - 1) * k.stride;
#pragma GCC unroll 4
        for (int n = 0; n < kFours; n++) s[n][j] = zero();
      }
      const float* q = queries;
      for (int e = 0; e < E; e += 8, q += kFours * kLanes) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          if (e % 32 == 0) asked.line(key + 4 * four + j, e);
          const F pairs = broadcast<4>((const float*)(rows[j] + e));
#pragma GCC unroll 4
          for (int n = 0; n < kFours; n++) s[n][j] = dot_pairs(pairs, load(q + n * kLanes), s[n][j]);
        }
      }
#pragma GCC unroll 4
      for (int n = 0; n < kFours; n++) sums[n][four] = sum_fours(s[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < kFours; n++) {
      transpose_fours(sums[n]);
#pragma GCC unroll 4
      for (int head = 0; head < 4; head++)
        store(scores + (4 * n + head) * Room::kKeys + key, first_or(keys - key, sums[n][head], -INFINITY));
    }
  }

  // The instance for tile.rows heads.
  template <int kHeads>
  static void values_of(RowTile& tile, Rows v, int keys, int E, const float* weights,
                        const AskedRows& asked) {
    if constexpr (kHeads > 1)
      if (tile.rows < kHeads) return values_of<kHeads - 1>(tile, v, keys, E, weights, asked);
    for (int e = 0; e < E; e += 2 * kLanes) {
      F low[kHeads], high[kHeads];
      float* const o = tile.o + e;
#pragma GCC unroll 8
      for (int head = 0; head < kHeads; head++) {
        low[head] = load(o + head * E);
        high[head] = load(o + head * E + kLanes);
      }
      const uint16_t* row = (const uint16_t*)v.data + e;
      for (int key = 0; key < keys; key += 2, row += 2 * v.stride) {
        const ZippedRows pairs(row, key + 1 < keys ? row + v.stride : nullptr);
        asked.line(key, e);
        asked.line(key + 1, e);
#pragma GCC unroll 8
        for (int head = 0; head < kHeads; head++) {
          const F weight = set1(weights[head * (Room::kKeys / 2) + key / 2]);
          low[head] = dot_pairs(pairs.low, weight, low[head]);
          high[head] = dot_pairs(pairs.high, weight, high[head]);
        }
      }
#pragma GCC unroll 8
      for (int head = 0; head < kHeads; head++) {
        store(o + head * E, low[head]);
        store(o + head * E + kLanes, high[head]);
      }
    }
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
