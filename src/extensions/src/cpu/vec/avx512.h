// Sixteen float lanes with AVX-512 (F, BW, VL, DQ).
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "cpu/vec/aliased_float.h"

#define VEC_FN static inline __attribute__((always_inline))

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kLanes = 16;
constexpr int kRegisters = 32;
constexpr bool kMaskedLoads = true;  // load_first*(): the first n < kLanes elements, then zeros

typedef __m512 F;
typedef __mmask16 M;

VEC_FN F zero() { return _mm512_setzero_ps(); }
VEC_FN F set1(float x) { return _mm512_set1_ps(x); }
VEC_FN F load(const float* p) { return _mm512_loadu_ps(p); }
VEC_FN void store(float* p, F x) { _mm512_storeu_ps(p, x); }
// Keeps a loaded vector in a register: GCC would reload it for each of several products, more loads than a
// core has ports for.
VEC_FN F keep_in_register(F x) {
  __asm__("" : "+v"(x));
  return x;
}

VEC_FN F add(F a, F b) { return _mm512_add_ps(a, b); }
VEC_FN F sub(F a, F b) { return _mm512_sub_ps(a, b); }
VEC_FN F mul(F a, F b) { return _mm512_mul_ps(a, b); }
VEC_FN F div(F a, F b) { return _mm512_div_ps(a, b); }
VEC_FN F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
VEC_FN F max(F a, F b) { return _mm512_max_ps(a, b); }  // b where either is NaN
VEC_FN F min(F a, F b) { return _mm512_min_ps(a, b); }

VEC_FN M less_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
VEC_FN M equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
VEC_FN M mask_and(M a, M b) { return a & b; }
VEC_FN bool all(M m) { return m == 0xffff; }
VEC_FN F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }

// 2^x = 2^floor(x) * 2^r with r in [0, 1); the polynomial's relative error is 8.3e-8.
VEC_FN F exp2(F x) {
  F r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  F p = fma(r, set1(0.00186713005f), set1(0.00901703071f));
  p = fma(p, r, set1(0.05579991266f));
  p = fma(p, r, set1(0.24016444385f));
  p = fma(p, r, set1(0.69315129519f));
  p = fma(p, r, set1(1.0f));
  return _mm512_scalef_ps(p, x);
}

VEC_FN F load_f16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
VEC_FN F load_bf16(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
VEC_FN __mmask16 first(int n) { return (__mmask16)((1u << n) - 1); }
VEC_FN F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
VEC_FN F load_first_f16(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
VEC_FN F load_first_bf16(const uint16_t* p, int n) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
VEC_FN void store_f16(uint16_t* p, F x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
VEC_FN void store_bf16(uint16_t* p, F x) {
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

VEC_FN F load_u4(const uint8_t* p) {
  const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i down = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i words = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i*)p));
  const __m512i shifted = _mm512_srlv_epi32(_mm512_permutexvar_epi32(half, words), down);
  return _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(15)));
}
VEC_FN F load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
}

typedef __m512i W;

template <int kBits>
VEC_FN W load_words(const uint32_t* p) {
  __m512i words = _mm512_loadu_si512(p);
  return kBits == 4 ? words : _mm512_xor_si512(words, _mm512_set1_epi32((int)0x80808080));
}
template <int kBits, int kIndex>
VEC_FN F decode_quant(W words) {
  if constexpr (kBits == 4) {
    const F table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * kIndex), table);
  } else {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * kIndex), 24));
  }
}

VEC_FN F permute(F x, const int32_t* from) { return _mm512_permutexvar_ps(_mm512_loadu_si512(from), x); }

template <int G>
VEC_FN F broadcast(const float* p) {
  if constexpr (G == 1) return _mm512_set1_ps(*(const AliasedFloat*)p);
  if constexpr (G == 2) {
    double pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
  }
  if constexpr (G == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  if constexpr (G == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
  if constexpr (G == 16) return _mm512_loadu_ps(p);
}

template <int G>
VEC_FN F sum_neighbours(F x) {
  if constexpr (G >= 2) x = add(x, _mm512_permute_ps(x, 0xb1));
  if constexpr (G >= 4) x = add(x, _mm512_permute_ps(x, 0x4e));
  if constexpr (G >= 8) x = add(x, _mm512_shuffle_f32x4(x, x, 0xb1));
  if constexpr (G >= 16) x = add(x, _mm512_shuffle_f32x4(x, x, 0x4e));
  return x;
}

VEC_FN void transpose(F rows[kLanes]) {
  F t[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    rows[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    rows[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    rows[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    int block = i / 8 * 8, lane = i % 8;
    F a = rows[block + lane % 4], b = rows[block + lane % 4 + 4];
    t[i] = lane < 4 ? _mm512_shuffle_f32x4(a, b, 0x88) : _mm512_shuffle_f32x4(a, b, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; i++) {
    rows[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}

// Pairs, fours, then quarters.
VEC_FN F sum_lanes(const float* p, int64_t stride) {
  F fours[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++, p += 4 * stride) {
    const F a = load(p), b = load(p + stride), c = load(p + 2 * stride), d = load(p + 3 * stride);
    const __m512d ab = _mm512_castps_pd(add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    const __m512d cd = _mm512_castps_pd(add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    fours[i] =
        add(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  }
  const auto halve = [](F a, F b) __attribute__((always_inline)) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return halve(halve(fours[0], fours[1]), halve(fours[2], fours[3]));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
