// Word codec for VNNI: the bytes of a word, or its nibbles as two words of bytes, are multiplied by the int8
// digits of x (int8_digits-inl.h), the digits of four elements in each lane.
#pragma once

#include "cpu/quantized/codec/f32-inl.h"
#include "cpu/quantized/int8_digits-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The sums of the digits of a word are exact: one 32-bit integer, or two for 8 bits, where one is too small.
// They begin at -kZeroPoint * sum(x), so the product is one with q - kZeroPoint, as in F32Codec: a weight in
// the middle of its range contributes 0.
template <int kBits_>
struct Int8Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = true;
  static constexpr float kZeroPoint = 1 << (kBits - 1);
  static constexpr int kHalves = 8 / kBits;
  static constexpr int kDigitOperands = kDigits * kHalves;
  static constexpr int kSums = kBits == 4 ? 1 : 2;
  static constexpr int kOperands = kDigitOperands + kSums;  // the last are the initial sums

  VEC_FN F as_multiplied(F x) { return x; }

  template <class Work>
  static void in_fp_mode(const Work& work) {
    with_denormals(work);
  }

  // Writes the initial sums of a vector of words; they must be zero before.
  static void write_initial_sums(float* x, int64_t stride) {
    W sums[kSums];
    accumulate(_mm512_set1_epi32(kBits == 4 ? 0x11111111 : 0x01010101), x, stride, sums);
    for (int i = 0; i < kSums; i++) {
      const W initial = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums[i], kBits - 1));
      _mm512_storeu_si512(x + (kDigitOperands + i) * stride, initial);
    }
  }

  // Writes the operands of a quantization group, as write_operands does. Returns the scale of its digits.
  template <class AddressOf>
  VEC_FN float write_group(const float* x_f32, int group_words, int64_t stride, AddressOf address_of) {
    constexpr int kQuantsPerWord = 32 / kBits;
    return write_digits<kBits == 4>(
        x_f32, group_words * kQuantsPerWord, [&](int first, int digit, __m128i digits) {
          float* const to = address_of(first / kQuantsPerWord) + digit * kHalves * stride;
          if constexpr (kBits == 4) {
            _mm_storel_epi64((__m128i*)to, digits);
            _mm_storel_epi64((__m128i*)(to + stride), _mm_srli_si128(digits, 8));
          } else {
            _mm_storeu_si128((__m128i*)to, digits);
          }
        });
  }

  // Divides the scales and sums of the groups of a row by its largest scale, which it returns in all lanes:
  // so their products with the scales of the weights do not overflow or become denormal because of x. They
  // lie in so many vectors, `stride` floats apart.
  VEC_FN F normalise_scales(float* scales, float* sums, int64_t vectors, int64_t stride) {
    F largest = zero();
    for (int64_t v = 0; v < vectors; v++) largest = max(_mm512_loadu_ps(scales + v * stride), largest);
    largest = set1(_mm512_reduce_max_ps(largest));
    for (int64_t at = 0; at < vectors * stride; at += stride) {
      store(scales + at, div(_mm512_loadu_ps(scales + at), largest));
      store(sums + at, div(_mm512_loadu_ps(sums + at), largest));
    }
    return largest;
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
    const W nibble_mask = _mm512_set1_epi8(15);
    const W low_nibbles = kBits == 4 ? _mm512_and_si512(words, nibble_mask) : words;
    const W high_nibbles = kBits == 4 ? _mm512_and_si512(_mm512_srli_epi32(words, 4), nibble_mask) : words;
    const W initial = _mm512_loadu_si512(x + (kOperands - 1) * stride);
    if constexpr (kBits == 4) {
      const W high = add_digit(_mm512_setzero_si512(), low_nibbles, high_nibbles, x, stride);
      const W middle =
          add_digit(_mm512_slli_epi32(high, 8), low_nibbles, high_nibbles, x + 2 * stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), initial);
      sums[0] = add_digit(shifted, low_nibbles, high_nibbles, x + 4 * stride, stride);
    } else {
      sums[0] =
          add_digit(_mm512_loadu_si512(x + kDigitOperands * stride), low_nibbles, high_nibbles, x, stride);
      const W middle = add_digit(_mm512_setzero_si512(), low_nibbles, high_nibbles, x + stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), initial);
      sums[1] = add_digit(shifted, low_nibbles, high_nibbles, x + 2 * stride, stride);
    }
  }

  VEC_FN W add_digit(W sum, W low_nibbles, W high_nibbles, const float* x, int64_t stride) {
    sum = _mm512_dpbusd_epi32(sum, low_nibbles, _mm512_loadu_si512(x));
    return kBits == 4 ? _mm512_dpbusd_epi32(sum, high_nibbles, _mm512_loadu_si512(x + stride)) : sum;
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
