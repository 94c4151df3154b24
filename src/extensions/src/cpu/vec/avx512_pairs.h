// Pairs of bfloat16 in one 32-bit lane, the operand of the bfloat16 dot-product instructions.
#pragma once

#include "cpu/vec/avx512.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// acc + a.low * b.low + a.high * b.high in every lane.
VEC_FN F dot_pairs(F a, F b, F acc) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

struct PairMac {
  VEC_FN F mac(F a, F b, F c) { return dot_pairs(a, b, c); }
};

// Rounds two float vectors to pairs (low, high).
VEC_FN F make_pairs(F low, F high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}

// Pairs of elements from two rows of memory: (low[i], high[i]), i < count <= kLanes; zeros behind them.
VEC_FN F zip_pairs(const uint16_t* low, const uint16_t* high, int count) {
  __mmask16 some = count >= kLanes ? 0xffff : (__mmask16)((1u << count) - 1);
  __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, low));
  __m512i b = high ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, high)) : _mm512_setzero_si512();
  return _mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}

// Up to kLanes pairs of neighbours (p[0], p[1]), (p[2], p[3]), ... of `count` elements; zeros behind them.
VEC_FN F load_pairs(const uint16_t* p, int count) {
  if (count >= 2 * kLanes) return _mm512_loadu_ps(p);
  __mmask32 some = count <= 0 ? 0 : (__mmask32)((uint64_t{1} << count) - 1);
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, p));
}

// What a half byte stands for: (half byte - less) * times, exact in bfloat16. Twice over, so that the bit
// above it in an index does not matter.
struct alignas(64) PairTable {
  uint16_t values[32];

  constexpr PairTable(int less, int times) : values() {
    for (int i = 0; i < 32; i++)
      values[i] = (uint16_t)(__builtin_bit_cast(uint32_t, (float)((i % 16 - less) * times)) >> 16);
  }
};

// Half byte kIndex of the lower and of the upper half of each word, as a pair.
template <int kIndex>
VEC_FN F look_up(W words, const PairTable& table) {
  return _mm512_castsi512_ps(
      _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4 * kIndex), _mm512_load_si512(table.values)));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
