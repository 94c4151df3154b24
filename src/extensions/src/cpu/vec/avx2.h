// Vectors of 8 floats with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "cpu/vec/aliased_float.h"

#define VEC_FN static inline __attribute__((always_inline))

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
constexpr bool kMaskedLoads = false;

typedef __m256 F;
typedef __m256 M;  // all bits of a lane set or clear

VEC_FN F zero() { return _mm256_setzero_ps(); }
VEC_FN F set1(float x) { return _mm256_set1_ps(x); }
VEC_FN F load(const float* p) { return _mm256_loadu_ps(p); }
VEC_FN void store(float* p, F x) { _mm256_storeu_ps(p, x); }
// Keeps a loaded vector in a register: GCC would reload it for each of several products, more loads than a
// core has ports for.
VEC_FN F keep_in_register(F x) {
  __asm__("" : "+x"(x));
  return x;
}

VEC_FN F add(F a, F b) { return _mm256_add_ps(a, b); }
VEC_FN F sub(F a, F b) { return _mm256_sub_ps(a, b); }
VEC_FN F mul(F a, F b) { return _mm256_mul_ps(a, b); }
VEC_FN F div(F a, F b) { return _mm256_div_ps(a, b); }
VEC_FN F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
VEC_FN F max(F a, F b) { return _mm256_max_ps(a, b); }  // b where either is NaN
VEC_FN F min(F a, F b) { return _mm256_min_ps(a, b); }

VEC_FN F pow2_from_low_bits(F x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}
#include "cpu/vec/exp2.h"

VEC_FN M less_equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
VEC_FN M equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
VEC_FN M mask_and(M a, M b) { return _mm256_and_ps(a, b); }
VEC_FN bool all(M m) { return _mm256_movemask_ps(m) == 0xff; }
VEC_FN F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }

VEC_FN F load_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
VEC_FN void store_f16(uint16_t* p, F x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VEC_FN F load_bf16(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
VEC_FN void store_bf16(uint16_t* p, F x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i nearest = _mm256_srli_epi32(_mm256_add_epi32(bits, round), 16);
  const __m256i quiet =
      _mm256_or_si256(high, _mm256_set1_epi32(0x40));  // rounding a NaN could make it infinite
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(nearest, quiet, nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0x08);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}

VEC_FN F load_u4(const uint8_t* p) {
  int word;
  memcpy(&word, p, sizeof word);
  const __m256i down = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(word), down);
  return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15)));
}
VEC_FN F load_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}

typedef __m256i W;

template <int kBits>
VEC_FN W load_words(const uint32_t* p) {
  const int top = kBits == 4 ? (int)0x88888888 : (int)0x80808080;
  return _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)p), _mm256_set1_epi32(top));
}
template <int kBits, int kIndex>
VEC_FN F decode_quant(W words) {
  const __m256i up = _mm256_slli_epi32(words, 32 - kBits - kBits * kIndex);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(up, 32 - kBits));
}

VEC_FN F permute(F x, const int32_t* from) {
  return _mm256_permutevar8x32_ps(x, _mm256_loadu_si256((const __m256i*)from));
}

template <int G>
VEC_FN F broadcast(const float* p) {
  static_assert(G == 1 || G == 2 || G == 4 || G == 8, "a power of two up to the number of lanes");
  if constexpr (G == 1) return _mm256_set1_ps(*(const AliasedFloat*)p);
  if constexpr (G == 2) {
    double pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
  }
  if constexpr (G == 4) return _mm256_set_m128(_mm_loadu_ps(p), _mm_loadu_ps(p));
  if constexpr (G == 8) return load(p);
}

template <int G>
VEC_FN F sum_neighbours(F x) {
  static_assert(G == 1 || G == 2 || G == 4 || G == 8, "a power of two up to the number of lanes");
  if constexpr (G >= 2) x = add(x, _mm256_permute_ps(x, 0xb1));
  if constexpr (G >= 4) x = add(x, _mm256_permute_ps(x, 0x4e));
  if constexpr (G >= 8) x = add(x, _mm256_permute2f128_ps(x, x, 0x01));
  return x;
}

// Pairs of rows, then pairs of pairs inside the 128-bit halves, then the halves themselves.
VEC_FN void transpose(F rows[kLanes]) {
  F pairs[8], quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

VEC_FN F sum_lanes(const float* p, int64_t stride) {
  F halves[2];
  for (int i = 0; i < 2; i++, p += 4 * stride)
    halves[i] = _mm256_hadd_ps(_mm256_hadd_ps(load(p), load(p + stride)),
                               _mm256_hadd_ps(load(p + 2 * stride), load(p + 3 * stride)));
  return add(_mm256_permute2f128_ps(halves[0], halves[1], 0x20),
             _mm256_permute2f128_ps(halves[0], halves[1], 0x31));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
