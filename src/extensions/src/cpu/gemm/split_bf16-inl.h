// Split bf16: float32 as the exact sum of 3 bfloat16 parts (hi + mid + lo), float16 as that of 2.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
constexpr int kSplitParts = 1;
template <>
constexpr int kSplitParts<Element::f16> = 2;
template <>
constexpr int kSplitParts<Element::f32> = 3;

// Splits 2 * kLanes elements part by part, the highest first. Parts are rounded, so remainders have either
// sign.
class Bf16Parts {
  F first_, second_;

 public:
  VEC_FN Bf16Parts of(F first, F second) {
    Bf16Parts parts;
    parts.first_ = first;
    parts.second_ = second;
    return parts;
  }

  VEC_FN __m512i next(Bf16Parts& parts) {
    const auto to_f32 = [](__m256i halves) __attribute__((always_inline)) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    };
    const auto part = (__m512i)neighbours(parts.first_, parts.second_);
    parts.first_ = sub(parts.first_, to_f32(_mm512_castsi512_si256(part)));
    parts.second_ = sub(parts.second_, to_f32(_mm512_extracti64x4_epi64(part, 1)));
    return part;
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
