// Decode on AMX tiles. Scores: the A operand is K in place. Output: the A operand is P, the B operand V
// zipped into pairs of keys.
#pragma once

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/decode/decode_bf16-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxDecode {
  static constexpr int kMaxHeads = kDecodeHeads;
  static constexpr bool kReadsAddresses = false;
  typedef DecodeScratch<AmxOperands> Scratch;

  static void pack(const ForwardTask& task, QueryTile& tile) { pack_queries<AmxOperands>(task, tile); }

  static void scores(const QueryTile& tile, SourceRows k, int keys, int E, const Scratch& scratch,
                     const PrefetchRows& prefetch) {
    const int whole = keys / 16 * 16, left = keys - whole;
    const auto* rows = (const uint16_t*)k.data;
    amx_gemm<false>({rows, k.stride * 2}, whole / 16, tile.q, 1, E / 32, scratch.products);
    if (left > 0) {  // a tile reads 16 rows
      for (int key = 0; key < 16; key++)
        for (int e = 0; e < E; e += 32)
          store(scratch.keys + (key * E + e) / 2,
                key < left ? load_pairs(rows + (whole + key) * k.stride + e, 32) : zero());
      amx_gemm<false>({scratch.keys, E * 2}, 1, tile.q, 1, E / 32, scratch.products + whole * kDecodeHeads);
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
    const int steps = (keys + 31) / 32;
    const auto* row = (const uint16_t*)v.data;
    for (int key = 0; key < 32 * steps; key += 2, row += 2 * v.stride)
      for (int e = 0; e < E; e += 32) {
        float* pairs = scratch.keys + key / 2 * E + e;
        if (key >= keys) {
          store(pairs, zero());
          store(pairs + 16, zero());
          continue;
        }
        const ZippedRows zipped(row + e, key + 1 < keys ? row + v.stride + e : nullptr);
        prefetch.line<false>(key, e);
        prefetch.line<false>(key + 1, e);
        store(pairs, zipped.low);
        store(pairs + 16, zipped.high);
      }
    amx_gemm<true>({scratch.p, Scratch::kKeys * 2}, 1, scratch.keys, E / 16, steps, tile.o);
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
