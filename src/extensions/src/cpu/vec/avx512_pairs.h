// Pairs of bfloat16 in one 32-bit lane, the operand of the bfloat16 dot-product instructions.
#pragma once

#include "cpu/vec/avx512.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// acc + a.low * b.low + a.high * b.high in every lane.
VEC_FN F dot_pairs(F a, F b, F acc) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

// The same with one pair of memory in every lane. One instruction, where GCC 12 emits a broadcast and a
// product; two are a quarter slower where there are as many of both (Zen 4, benches/LOG.md).
VEC_FN F dot_broadcast_pair(const float* a, F b, F acc) {
  __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*(const AliasedFloat*)a));
  return acc;
}

// x as these products take it: denormals are zero.
VEC_FN F as_multiplied_in_pairs(F x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), set1(0x1p-126f), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(normal, x);
}

struct PairMac {
  VEC_FN F mac(F a, F b, F c) { return dot_pairs(a, b, c); }
  VEC_FN F mac_broadcast(const float* a, F b, F c) { return dot_broadcast_pair(a, b, c); }
};

// Rounds two float vectors to pairs (low, high).
VEC_FN F make_pairs(F low, F high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}

// Pairs of elements from two rows of memory: (low[i], high[i]), i < count <= kLanes; then zeros.
VEC_FN F zip_pairs(const uint16_t* low, const uint16_t* high, int count) {
  __mmask16 some = count >= kLanes ? 0xffff : (__mmask16)((1u << count) - 1);
  __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, low));
  __m512i b = high ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, high)) : _mm512_setzero_si512();
  return _mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}

// Up to kLanes pairs of neighbours (p[0], p[1]), (p[2], p[3]), ... of `count` elements; then zeros.
VEC_FN F load_pairs(const uint16_t* p, int count) {
  if (count >= 2 * kLanes) return _mm512_loadu_ps(p);
  __mmask32 some = count <= 0 ? 0 : (__mmask32)((uint64_t{1} << count) - 1);
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, p));
}

// Rounds two float vectors to pairs of neighbours: (low[0], low[1]), ..., then those of `high`.
VEC_FN F neighbours(F low, F high) { return (F)_mm512_cvtne2ps_pbh(high, low); }

// The first `count` lanes of x; `other` in the lanes after them.
VEC_FN F first_or(int count, F x, float other) {
  return count >= kLanes ? x : _mm512_mask_mov_ps(set1(other), first(count), x);
}

// The sum of every four neighbouring lanes of four vectors: lane 4 * i + j is that of lanes 4 * i ... of
// x[j].
VEC_FN F sum_fours(const F x[4]) {
  const F a = add(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
  const F b = add(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
  return add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

// x[i] lanes 4 * j ... <-> x[j] lanes 4 * i ...
VEC_FN void transpose_fours(F x[4]) {
  const F a = _mm512_shuffle_f32x4(x[0], x[1], 0x88), b = _mm512_shuffle_f32x4(x[0], x[1], 0xdd);
  const F c = _mm512_shuffle_f32x4(x[2], x[3], 0x88), d = _mm512_shuffle_f32x4(x[2], x[3], 0xdd);
  x[0] = _mm512_shuffle_f32x4(a, c, 0x88);
  x[1] = _mm512_shuffle_f32x4(b, d, 0x88);
  x[2] = _mm512_shuffle_f32x4(a, c, 0xdd);
  x[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
}

VEC_FN float max_lanes(F x) { return _mm512_reduce_max_ps(x); }

// 2 * kLanes elements of two rows as pairs (first[i], second[i]); a missing second row is zeros. Each of the
// two vectors holds every other four pairs: store_unzipped() restores the order of sums of such vectors.
struct ZippedRows {
  F low, high;

  ZippedRows(const uint16_t* first, const uint16_t* second) {
    const __m512i a = _mm512_loadu_si512(first);
    const __m512i b = second ? _mm512_loadu_si512(second) : _mm512_setzero_si512();
    low = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b));
    high = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b));
  }
};

VEC_FN void store_unzipped(float* out, F low, F high) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  store(out, _mm512_permutex2var_ps(low, first, high));
  store(out + kLanes, _mm512_permutex2var_ps(low, second, high));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
