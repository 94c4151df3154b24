// Rows of x as int8 digits, for exact integer products: the elements of a quantization group become integers
// of 24 bits with a shared scale, a power of two, and each integer three signed int8 digits:
// high * 65536 + middle * 256 + low.
//
// The scale is such that the largest element of the group takes 23 bits and a sign. The rounding error is at
// most half a unit, one bit more than that of float32; bfloat16 and float16 are exact unless they are far
// smaller than the largest element.
#pragma once

#include "cpu/quantized/max_magnitude-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kDigits = 3;
constexpr float kMaxInteger = 0x7f7f7fp0f;  // of three digits

// The exponent of the scale of a group, from the bits of its largest magnitude.
inline int scale_exponent(uint32_t largest) {
  // A mantissa that three digits cannot hold takes the exponent of the next power of two. Denormals share one
  // exponent, whose scale is the smallest denormal.
  const float room = __builtin_bit_cast(float, largest) * (0x1p23f / kMaxInteger);
  return (int)(__builtin_bit_cast(uint32_t, room) >> 23) - 127 - 22;
}

// Calls write(first, digit, digits) for each kLanes elements from `first` on, high digit first; returns the
// scale. With kNibbles, digits are in the order of packed 4-bit weights: of the kLanes elements, first those
// of all low nibbles, then those of the high ones.
template <bool kNibbles, class Write>
VEC_FN float write_digits(const float* x, int count, Write write) {
  const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m512i offset = _mm512_set1_epi32(0x808080);
  const int exponent = scale_exponent(max_magnitude_bits<Element::f32>(x, count));
  for (int i = 0; i < count; i += kLanes) {
    __m512i integer = _mm512_cvtps_epi32(_mm512_scalef_ps(load(x + i), set1((float)-exponent)));
    if constexpr (kNibbles) integer = _mm512_permutexvar_epi32(order, integer);
    // Adding half of each digit's range turns signed digits into unsigned ones.
    integer = _mm512_xor_si512(_mm512_add_epi32(integer, offset), offset);
    write(i, 0, _mm512_cvtepi32_epi8(_mm512_srli_epi32(integer, 16)));
    write(i, 1, _mm512_cvtepi32_epi8(_mm512_srli_epi32(integer, 8)));
    write(i, 2, _mm512_cvtepi32_epi8(integer));
  }
  return _mm_cvtss_f32(_mm_scalef_ss(_mm_set_ss(1), _mm_set_ss((float)exponent)));
}

template <class Work>
__attribute__((noinline)) static void call_outlined(const Work& work) {
  work();
}

// Calls work() with FTZ and DAZ off, whatever the mode of the thread: the scale of small elements is
// denormal.
//
// Compilers ignore MXCSR and may move arithmetic across _mm_setcsr. Calls of functions that are not inlined
// and write memory stay where they are: this one and call_outlined().
template <class Work>
__attribute__((noinline)) static void with_denormals(const Work& work) {
  constexpr unsigned kFtzAndDaz = 0x8040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~kFtzAndDaz);
  call_outlined(work);
  _mm_setcsr(before);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
