// Few rows times quantized weights in pairs of bfloat16: the numbers of the weights are exact.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// A word gives four vectors of pairs: its half bytes a and a + 4. The two half bytes of a byte are factors of
// the same unit of x; the upper one counts sixteenfold.
template <int kBits_>
struct PairUnits {
  static constexpr int kBits = kBits_;
  static constexpr bool kWhole = false;
  static constexpr float kOffset = 1 << (kBits - 1);
  static constexpr int kUnits = 16 / kBits;
  static constexpr int kFactors = 4;
  static constexpr int unit_of(int factor) { return factor * kUnits / kFactors; }

  static float pack(const float* share, int unit) {
    uint32_t low, high;
    memcpy(&low, share + unit, sizeof low);
    memcpy(&high, share + unit + kUnits, sizeof high);
    return __builtin_bit_cast(float, low >> 16 | (high & 0xffff0000));
  }

  VEC_FN W load(const float* words) { return _mm512_loadu_si512(words); }
  template <int kFactor>
  VEC_FN F factor(W words) {
    static constexpr PairTable kNumber(8, 1), kLower(0, 1), kUpper(8, 16);
    return look_up<kFactor>(words, kBits == 4 ? kNumber : kFactor % 2 == 0 ? kLower : kUpper);
  }
  VEC_FN F mac(F a, F b, F c) { return dot_pairs(a, b, c); }
  VEC_FN F mac_broadcast(const float* a, F b, F c) { return dot_broadcast_pair(a, b, c); }
  VEC_FN F as_multiplied(F x) { return as_multiplied_in_pairs(x); }

  template <class Work>
  VEC_FN void in_mode(const Work& work) {
    work();
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
