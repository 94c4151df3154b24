// Rows of x as whole numbers, for integer products: each part of a row is written in units of a power of two,
// its own, chosen so that the largest number of the part takes 23 bits and a sign. What is lost is at most
// half a unit, one bit more than a float32 of that size loses; bfloat16 and float16 lose nothing unless they
// are far smaller than the largest.
//
// A number is three digits of 8 bits with a sign: high * 65536 + middle * 256 + low.
#pragma once

#include <math.h>

#include "cpu/quantized/codec_f32-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kDigits = 3;
constexpr float kLargestNumber = 0x7f7f7fp0f;  // of three digits

// The exponent of a unit for numbers of which the largest has these bits, its sign left out.
inline int unit_exponent(uint32_t largest) {
  // A mantissa that three digits cannot hold counts as the next power of two. Denormal numbers are all of one
  // exponent, whose unit is the smallest of them.
  const float room = __builtin_bit_cast(float, largest) * (0x1p23f / kLargestNumber);
  return (int)(__builtin_bit_cast(uint32_t, room) >> 23) - 127 - 22;
}

// The digits of a part: write(first, digit, digits) for each kLanes numbers from `first` on, the high digit
// first. Returns the unit. Numbers beside kLanes / 8 words of half bytes stand as their bytes have them:
// first those of the lower halves of all, then of the upper ones.
template <bool kHalfBytes, class Write>
VEC_FN float write_digits(const float* x, int part, Write write) {
  const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m512i offset = _mm512_set1_epi32(0x808080);
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < part; i += kLanes)
    largest = _mm512_max_epu32(
        largest, _mm512_and_si512(_mm512_castps_si512(load(x + i)), _mm512_set1_epi32(0x7fffffff)));
  const int exponent = unit_exponent(_mm512_reduce_max_epu32(largest));
  for (int i = 0; i < part; i += kLanes) {
    __m512i number = _mm512_cvtps_epi32(_mm512_scalef_ps(load(x + i), set1((float)-exponent)));
    if constexpr (kHalfBytes) number = _mm512_permutexvar_epi32(order, number);
    // Adding half of each digit's range makes the digits those of a number without a sign.
    number = _mm512_xor_si512(_mm512_add_epi32(number, offset), offset);
    write(i, 0, _mm512_cvtepi32_epi8(_mm512_srli_epi32(number, 16)));
    write(i, 1, _mm512_cvtepi32_epi8(_mm512_srli_epi32(number, 8)));
    write(i, 2, _mm512_cvtepi32_epi8(number));
  }
  return ldexpf(1, exponent);
}

template <class Work>
__attribute__((noinline)) static void apart(const Work& work) {
  work();
}

// Calls work() with FTZ and DAZ off, whatever the thread has been told: the unit of small numbers is
// denormal.
//
// To a compiler, arithmetic does not depend on the control register: in one function, it may move what is
// calculated beyond the instructions that switch it. So nothing is calculated in the function that switches,
// which is not inlined, and the work is a call to another one. Calls that write memory stay where they are.
template <class Work>
__attribute__((noinline)) static void with_denormals(const Work& work) {
  constexpr unsigned kFlushed = 0x8040;  // results and operands
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~kFlushed);
  apart(work);
  _mm_setcsr(before);
}

// Units for one or two rows: four numbers' digits in a lane. A word of eight half bytes is multiplied as two
// words of bytes. Sums of digits are exact; a word's are put together in a 32-bit integer or, where that is
// too small for bytes, in two. Each of these begins at what makes the weights' numbers less by half their
// range, see WideUnits: weights of zero then mostly leave nothing.
template <int kBits_>
struct DigitUnits {
  static constexpr int kBits = kBits_;
  static constexpr bool kWhole = true;
  static constexpr float kOffset = 1 << (kBits - 1);
  static constexpr int kHalves = 8 / kBits;
  static constexpr int kDigitUnits = kDigits * kHalves;
  static constexpr int kSums = kBits == 4 ? 1 : 2;
  static constexpr int kUnits = kDigitUnits + kSums;  // the last are where the sums begin

  VEC_FN F as_multiplied(F x) { return x; }

  template <class Work>
  static void in_mode(const Work& work) {
    with_denormals(work);
  }

  // Writes where the sums of a vector of words begin, which are zero so far.
  static void write_beginnings(float* x, int64_t stride) {
    W sums[kSums];
    add_up(_mm512_set1_epi32(kBits == 4 ? 0x11111111 : 0x01010101), x, stride, sums);
    for (int i = 0; i < kSums; i++) {
      const W less = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums[i], kBits - 1));
      _mm512_storeu_si512(x + (kDigitUnits + i) * stride, less);
    }
  }

  // The units beside a group of words, see write_shares. Returns what one of its numbers is worth.
  template <class Place>
  static float write_group(const float* wide, int group_words, int64_t word, Place place) {
    constexpr int kShare = 32 / kBits;  // numbers of a word
    return write_digits<kBits == 4>(wide, group_words * kShare, [&](int first, int digit, __m128i digits) {
      if constexpr (kBits == 4) {
        _mm_storel_epi64((__m128i*)place(word + first / kShare, 2 * digit), digits);
        _mm_storel_epi64((__m128i*)place(word + first / kShare, 2 * digit + 1), _mm_srli_si128(digits, 8));
      } else {
        _mm_storeu_si128((__m128i*)place(word + first / kShare, digit), digits);
      }
    });
  }

  VEC_FN W load(const float* words) { return _mm512_loadu_si512(words); }

  VEC_FN F dot(W words, const float* x, int64_t stride) {
    W sums[kSums];
    add_up(words, x, stride, sums);
    if constexpr (kBits == 4) return _mm512_cvtepi32_ps(sums[0]);
    if constexpr (kBits == 8)
      return fma(_mm512_cvtepi32_ps(sums[0]), set1(65536), _mm512_cvtepi32_ps(sums[1]));
  }

 private:
  VEC_FN void add_up(W words, const float* x, int64_t stride, W* sums) {
    const W half = _mm512_set1_epi8(15);
    const W lower = kBits == 4 ? _mm512_and_si512(words, half) : words;
    const W upper = kBits == 4 ? _mm512_and_si512(_mm512_srli_epi32(words, 4), half) : words;
    const W begin = _mm512_loadu_si512(x + (kUnits - 1) * stride);
    if constexpr (kBits == 4) {
      const W high = add_digit(_mm512_setzero_si512(), lower, upper, x, stride);
      const W middle = add_digit(_mm512_slli_epi32(high, 8), lower, upper, x + 2 * stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), begin);
      sums[0] = add_digit(shifted, lower, upper, x + 4 * stride, stride);
    } else {
      sums[0] = add_digit(_mm512_loadu_si512(x + kDigitUnits * stride), lower, upper, x, stride);
      const W middle = add_digit(_mm512_setzero_si512(), lower, upper, x + stride, stride);
      const W shifted = _mm512_add_epi32(_mm512_slli_epi32(middle, 8), begin);
      sums[1] = add_digit(shifted, lower, upper, x + 2 * stride, stride);
    }
  }

  VEC_FN W add_digit(W sum, W lower, W upper, const float* x, int64_t stride) {
    sum = _mm512_dpbusd_epi32(sum, lower, _mm512_loadu_si512(x));
    return kBits == 4 ? _mm512_dpbusd_epi32(sum, upper, _mm512_loadu_si512(x + stride)) : sum;
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
