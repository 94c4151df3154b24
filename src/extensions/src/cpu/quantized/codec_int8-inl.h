// Codec of packed words for VNNI: the bytes of a word, or its half bytes as two words of bytes, meet the int8
// digits of x (int8_digits-inl.h), the digits of four elements in each lane.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"
#include "cpu/quantized/int8_digits-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The sums of the digits of a word are exact. They are combined in one 32-bit integer or, for 8 bits, where
// that is too small, in two. Each begins at minus half the range of weights times x, as in F32Codec: weights
// of zero then mostly leave nothing.
template <int kBits_>
struct Int8Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = true;
  static constexpr float kOffset = 1 << (kBits - 1);
  static constexpr int kHalves = 8 / kBits;
  static constexpr int kDigitOperands = kDigits * kHalves;
  static constexpr int kSums = kBits == 4 ? 1 : 2;
  static constexpr int kOperands = kDigitOperands + kSums;  // the last are the initial sums

  VEC_FN F as_multiplied(F x) { return x; }

  template <class Work>
  static void in_fp_mode(const Work& work) {
    with_denormals(work);
  }

  // Writes the initial sums of a vector of words, which are zero so far.
  static void write_initial_sums(float* x, int64_t stride) {
    W sums[kSums];
    accumulate(_mm512_set1_epi32(kBits == 4 ? 0x11111111 : 0x01010101), x, stride, sums);
    for (int i = 0; i < kSums; i++) {
      const W initial = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums[i], kBits - 1));
      _mm512_storeu_si512(x + (kDigitOperands + i) * stride, initial);
    }
  }

  // The operands beside a quantization group, see write_operands. Returns the scale of its digits.
  template <class Place>
  static float write_group(const float* wide, int group_words, int64_t word, Place place) {
    constexpr int kQuantsPerWord = 32 / kBits;
    return write_digits<kBits == 4>(
        wide, group_words * kQuantsPerWord, [&](int first, int digit, __m128i digits) {
          if constexpr (kBits == 4) {
            _mm_storel_epi64((__m128i*)place(word + first / kQuantsPerWord, 2 * digit), digits);
            _mm_storel_epi64((__m128i*)place(word + first / kQuantsPerWord, 2 * digit + 1),
                             _mm_srli_si128(digits, 8));
          } else {
            _mm_storeu_si128((__m128i*)place(word + first / kQuantsPerWord, digit), digits);
          }
        });
  }

  VEC_FN W load(const float* words) { return _mm512_loadu_si512(words); }

  // The sums of a vector of words, in units of the scale of its group.
  VEC_FN F dot(W words, const float* x, int64_t stride) {
    W sums[kSums];
    accumulate(words, x, stride, sums);
    if constexpr (kBits == 4) return _mm512_cvtepi32_ps(sums[0]);
    if constexpr (kBits == 8)
      return fma(_mm512_cvtepi32_ps(sums[0]), set1(65536), _mm512_cvtepi32_ps(sums[1]));
  }

 private:
  VEC_FN void accumulate(W words, const float* x, int64_t stride, W* sums) {
    const W nibble = _mm512_set1_epi8(15);
    const W lower = kBits == 4 ? _mm512_and_si512(words, nibble) : words;
    const W upper = kBits == 4 ? _mm512_and_si512(_mm512_srli_epi32(words, 4), nibble) : words;
    const W initial = _mm512_loadu_si512(x + (kOperands - 1) * stride);
    if constexpr (kBits == 4) {
      const W high = add_digit(_mm512_setzero_si512(), lower, upper, x, stride);
      const W middle = add_digit(_mm512_slli_epi32(high, 8), lower, upper, x + 2 * stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), initial);
      sums[0] = add_digit(shifted, lower, upper, x + 4 * stride, stride);
    } else {
      sums[0] = add_digit(_mm512_loadu_si512(x + kDigitOperands * stride), lower, upper, x, stride);
      const W middle = add_digit(_mm512_setzero_si512(), lower, upper, x + stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), initial);
      sums[1] = add_digit(shifted, lower, upper, x + 2 * stride, stride);
    }
  }

  VEC_FN W add_digit(W sum, W lower, W upper, const float* x, int64_t stride) {
    sum = _mm512_dpbusd_epi32(sum, lower, _mm512_loadu_si512(x));
    return kBits == 4 ? _mm512_dpbusd_epi32(sum, upper, _mm512_loadu_si512(x + stride)) : sum;
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
