// Decodes nibbles and bytes to bfloat16: exact values of quants, and whole weights of a quantization group,
// rounded.
#pragma once

#include "cpu/vec/avx512_pairs.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The bfloat16 value of a nibble: (nibble - zero_point) * step, exactly. The table holds the 16 values twice,
// because a look-up uses one bit above the nibble.
struct alignas(64) PairTable {
  uint16_t values[32];

  constexpr PairTable(int zero_point, int step) : values() {
    for (int i = 0; i < 32; i++)
      values[i] = (uint16_t)(__builtin_bit_cast(uint32_t, (float)((i % 16 - zero_point) * step)) >> 16);
  }
};

// Nibbles kIndex and kIndex + 4 of each word, as a pair.
template <int kIndex>
VEC_FN F look_up(W words, const PairTable& table) {
  return _mm512_castsi512_ps(
      _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4 * kIndex), _mm512_load_si512(table.values)));
}

// The weights of a quantization group in float32: q * scale + bias, as (q - half) * scale + (bias + half *
// scale), which is exact for longer. Scale and bias are bfloat16; `weights` takes q - half.
struct GroupScale {
  F scale, bias;

  GroupScale(uint16_t scale, uint16_t bias, float half)
      : scale(of(scale)), bias(fma(set1(half), this->scale, of(bias))) {}

  VEC_FN F of(uint16_t x) { return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(0xaaaaaaaa, (short)x)); }
  F weights(__m512i quants) const { return fma(_mm512_cvtepi32_ps(quants), scale, bias); }
};

// Codec of a quantization group: `decode` gives the 2 * kLanes weights at p, rounded to bfloat16.
template <int kBits>
struct Bf16GroupCodec;

// Looks nibbles up. The table holds the 16 weights twice: index bits above the fourth belong to other
// nibbles.
template <>
struct Bf16GroupCodec<4> {
  __m512i table;

  Bf16GroupCodec(uint16_t scale, uint16_t bias) {
    const __m512i quants = _mm512_setr_epi32(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const F weights = GroupScale(scale, bias, 8).weights(quants);
    table = (__m512i)_mm512_cvtne2ps_pbh(weights, weights);
  }

  F decode(const uint8_t* p) const {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
    const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(index, table));
  }
};

template <>
struct Bf16GroupCodec<8> {
  GroupScale group;

  Bf16GroupCodec(uint16_t scale, uint16_t bias) : group(scale, bias, 128) {}

  F decode(const uint8_t* p) const {
    return (F)_mm512_cvtne2ps_pbh(group.weights(centred(p + kLanes)), group.weights(centred(p)));
  }
  // q - 128
  VEC_FN __m512i centred(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return _mm512_cvtepi8_epi32(_mm_xor_si128(bytes, _mm_set1_epi8((char)0x80)));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
