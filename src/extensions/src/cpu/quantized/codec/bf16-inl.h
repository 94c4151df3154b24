// Word codec for pair dot products: decodes packed words to pairs of bfloat16, exactly.
#pragma once

#include "cpu/quantized/codec/bf16_group-inl.h"
#include "cpu/quantized/codec/f32-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// 4 bits: vector i holds nibbles i and i + 4 of each word, as q - 8. 8 bits: vectors 2 i and 2 i + 1 are the
// low and the high nibbles of the same bytes and share operand i; high nibbles decode to 16 (nibble - 8).
template <int kBits_>
struct Bf16Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = false;
  static constexpr float kZeroPoint = 1 << (kBits - 1);
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
    static constexpr PairTable kNibble(8, 1), kLow(0, 1), kHigh(8, 16);
    return look_up<kIndex>(words, kBits == 4 ? kNibble : kIndex % 2 == 0 ? kLow : kHigh);
  }

  VEC_FN F as_multiplied(F x) { return as_multiplied_in_pairs(x); }

  template <class Work>
  VEC_FN void in_fp_mode(const Work& work) {
    work();
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
