// Codec of packed words for pair dot products: decodes a word into pairs of bfloat16, exactly.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Half bytes i and i + 4 of a word are vector i of pairs. Of 8 bits, vectors 2 i and 2 i + 1 are the lower
// and upper half bytes of the same numbers and meet the same operand; the upper ones count 16-fold.
template <int kBits_>
struct Bf16Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = false;
  static constexpr float kOffset = 1 << (kBits - 1);
  static constexpr int kOperands = 16 / kBits;
  static constexpr int kDecoded = 4;
  static constexpr int operand_of(int decoded) { return decoded * kOperands / kDecoded; }
  typedef PairMac Mac;

  static float pack_operand(const float* elements, int operand) {
    uint32_t low, high;
    memcpy(&low, elements + operand, sizeof low);
    memcpy(&high, elements + operand + kOperands, sizeof high);
    return __builtin_bit_cast(float, low >> 16 | (high & 0xffff0000));
  }

  VEC_FN W load(const float* words) { return _mm512_loadu_si512(words); }
  template <int kIndex>
  VEC_FN F decode(W words) {
    static constexpr PairTable kNumber(8, 1), kLower(0, 1), kUpper(8, 16);
    return look_up<kIndex>(words, kBits == 4 ? kNumber : kIndex % 2 == 0 ? kLower : kUpper);
  }

  VEC_FN F as_multiplied(F x) { return as_multiplied_in_pairs(x); }

  template <class Work>
  VEC_FN void in_fp_mode(const Work& work) {
    work();
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
