// Decode on AMX tiles. Scores: the A operand is K in place. Output: the A operand is P, the B operand V
// zipped into pairs of keys.
#pragma once

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/decode/decode_bf16-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxDecode {
  static constexpr int kMaxHeads = kDecodeHeads;
  typedef DecodeScratch<AmxOperands> Scratch;

  static void pack(const ForwardTask& task, QueryTile& tile) { pack_queries<AmxOperands>(task, tile); }

  static void scores(const QueryTile& tile, SourceRows k, int keys, int E, const Scratch& scratch,
                     const PrefetchRows& prefetch) {
    int first = 0;
    if (!k.rows) {
      first = keys / 16 * 16;
      amx_gemm<false>({k.data, k.stride * 2}, first / 16, tile.q, 1, E / 32, scratch.products);
    }
    for (; first < keys; first += 16) {
      float* const products = scratch.products + first * kDecodeHeads;
      if (k.rows && first + 16 <= keys && has_one_stride(k, first)) {
        amx_gemm<false>({k.rows[first], k.stride * 2}, 1, tile.q, 1, E / 32, products);
        continue;
      }
      for (int key = first; key < first + 16; key++)
        for (int e = 0; e < E; e += 32)
          store(scratch.keys + ((key - first) * E + e) / 2,
                key < keys ? load_pairs((k.rows ? k.at<true>(key) : k.at<false>(key)) + e, 32) : zero());
      amx_gemm<false>({scratch.keys, E * 2}, 1, tile.q, 1, E / 32, products);
    }
    for (int key = 0; key < keys; key += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = load(scratch.products + (key + j) * kDecodeHeads);
      transpose(block);
      for (int head = 0; head < tile.rows; head++)
        store(scratch.scores + head * Scratch::kKeys + key, first_or(keys - key, block[head], -INFINITY));
    }
    prefetch.rest(0, E);
  }

  static void values(QueryTile& tile, SourceRows v, int keys, int E, const Scratch& scratch,
                     const PrefetchRows& prefetch) {
    if (v.rows)
      zip_values<true>(v, keys, E, scratch, prefetch);
    else
      zip_values<false>(v, keys, E, scratch, prefetch);
    const int steps = (keys + 31) / 32;
    amx_gemm<true>({scratch.p, Scratch::kKeys * 2}, 1, scratch.keys, E / 16, steps, tile.o);
  }

 private:
  // Whether the 16 rows from `first` on can be a tile of the A operand.
  static bool has_one_stride(SourceRows k, int first) {
    bool same = true;
    for (int key = first + 1; key < first + 16; key++)
      same = same && k.rows[key] - k.rows[key - 1] == k.stride;
    return same;
  }

  template <bool kByAddress>
  static void zip_values(SourceRows v, int keys, int E, const Scratch& scratch,
                         const PrefetchRows& prefetch) {
    for (int key = 0; key < (keys + 31) / 32 * 32; key += 2)
      for (int e = 0; e < E; e += 32) {
        float* pairs = scratch.keys + key / 2 * E + e;
        if (key >= keys) {
          store(pairs, zero());
          store(pairs + 16, zero());
          continue;
        }
        const ZippedRows zipped(v.at<kByAddress>(key) + e,
                                key + 1 < keys ? v.at<kByAddress>(key + 1) + e : nullptr);
        prefetch.line(key, e);
        prefetch.line(key + 1, e);
        store(pairs, zipped.low);
        store(pairs + 16, zipped.high);
      }
  }
};

// A tile always computes 16 heads: up to this number vectors of pairs are faster.
constexpr int kMaxVectorHeads = 2;

static int64_t forward_or_decode_amx(const ForwardTask& task, void* scratch) {
  typedef Bf16Decode<AmxOperands> VectorDecode;
  if (task.gqa_heads <= kMaxVectorHeads && can_decode<VectorDecode>(task))
    return decode<AmxOperands, VectorDecode>(task, scratch);
  return forward_or_decode<AmxOperands, AmxDecode>(task, scratch);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
