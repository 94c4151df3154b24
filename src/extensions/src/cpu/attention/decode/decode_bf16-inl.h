// Decode with bfloat16 pair products.
#pragma once

#include "cpu/attention/bf16_operands-inl.h"
#include "cpu/attention/decode/decode-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Scores: four pairs of one key times four heads at a time, a head in each quarter of a vector. Output: 32
// elements of two values times the probabilities of every head.
template <class Operands>
struct Bf16Decode {
  static constexpr int kMaxHeads = 8;
  typedef DecodeScratch<Operands> Scratch;

  // [four pairs][4 or 8 heads][pair], 0 for missing heads
  static void pack(const ForwardTask& task, QueryTile& tile) {
    const int heads = task.gqa_heads <= 4 ? 4 : 8;
    memset(tile.q, 0, sizeof(float) * heads * task.E / 2);
    for (int head = 0; head < task.gqa_heads; head++)
      for (int e = 0; e < task.E; e += 8)
        memcpy(tile.q + e / 2 * heads + 4 * head, (const uint16_t*)task.q + query_offset(task, head) + e, 16);
  }

  static void scores(const QueryTile& tile, SourceRows k, int keys, int E, const Scratch& scratch,
                     const PrefetchRows& prefetch) {
    if (k.rows)
      all_scores<true>(tile, k, keys, E, scratch, prefetch);
    else
      all_scores<false>(tile, k, keys, E, scratch, prefetch);
  }

  static void values(QueryTile& tile, SourceRows v, int keys, int E, const Scratch& scratch,
                     const PrefetchRows& prefetch) {
    if (v.rows)
      values_of<kMaxHeads, true>(tile, v, keys, E, scratch.p, prefetch);
    else
      values_of<kMaxHeads, false>(tile, v, keys, E, scratch.p, prefetch);
  }

 private:
  template <bool kByAddress>
  static void all_scores(const QueryTile& tile, SourceRows k, int keys, int E, const Scratch& scratch,
                         const PrefetchRows& prefetch) {
    for (int key = 0; key < keys; key += kLanes) {
      if (tile.rows <= 4)
        scores_of<1, kByAddress>(tile.q, k, key, keys, E, scratch.scores, prefetch);
      else
        scores_of<2, kByAddress>(tile.q, k, key, keys, E, scratch.scores, prefetch);
    }
  }

  // kLanes keys and 4 * kQuads heads.
  template <int kQuads, bool kByAddress>
  VEC_FN void scores_of(const float* queries, SourceRows k, int key, int keys, int E, float* scores,
                        const PrefetchRows& prefetch) {
    F sums[kQuads][4];  // of four heads, for each quad of keys
#pragma GCC unroll 4
    for (int four = 0; four < 4; four++) {
      const uint16_t* rows[4];
      F s[kQuads][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const int at = key + 4 * four + j;
        const int key_row = at < keys ? at : keys - 1;
        rows[j] = k.at<kByAddress>(key_row);
#pragma GCC unroll 4
        for (int n = 0; n < kQuads; n++) s[n][j] = zero();
      }
      const float* q = queries;
      for (int e = 0; e < E; e += 8, q += kQuads * kLanes) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          if (e % 32 == 0) prefetch.line(key + 4 * four + j, e);
          const F pairs = broadcast<4>((const float*)(rows[j] + e));
#pragma GCC unroll 4
          for (int n = 0; n < kQuads; n++) s[n][j] = dot_pairs(pairs, load(q + n * kLanes), s[n][j]);
        }
      }
#pragma GCC unroll 4
      for (int n = 0; n < kQuads; n++) sums[n][four] = sum_fours(s[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < kQuads; n++) {
      transpose_fours(sums[n]);
#pragma GCC unroll 4
      for (int head = 0; head < 4; head++)
        store(scores + (4 * n + head) * Scratch::kKeys + key, first_or(keys - key, sums[n][head], -INFINITY));
    }
  }

  // kHeads becomes tile.rows.
  template <int kHeads, bool kByAddress>
  static void values_of(QueryTile& tile, SourceRows v, int keys, int E, const float* p,
                        const PrefetchRows& prefetch) {
    if constexpr (kHeads > 1)
      if (tile.rows < kHeads) return values_of<kHeads - 1, kByAddress>(tile, v, keys, E, p, prefetch);
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
        const int last = key + 1 < keys ? key + 1 : key;
        const uint16_t* low_row = kByAddress ? v.rows[key] + e : row;
        const uint16_t* high_row = kByAddress ? v.rows[last] + e : row + v.stride;
        const ZippedRows pairs(low_row, key + 1 < keys ? high_row : nullptr);
        prefetch.line(key, e);
        prefetch.line(key + 1, e);
#pragma GCC unroll 8
        for (int head = 0; head < kHeads; head++) {
          const F weight = set1(p[head * (Scratch::kKeys / 2) + key / 2]);
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
