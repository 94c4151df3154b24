// Word codec for FMA: decodes packed words to float32.
//
// A word codec: how GEMV and skinny kernels multiply packed words. A vector of words decodes into kDecoded
// vectors of q - kZeroPoint; vector i is multiplied by x operand operand_of(i). pack_operand() makes
// the kOperands 32-bit operands of a word from its 32 / kBits elements of x.
#pragma once

#include "cpu/gemm/microkernel-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <int kBits_>
struct F32Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = false;
  static constexpr float kZeroPoint = 1 << (kBits - 1);
  static constexpr int kOperands = 32 / kBits;
  static constexpr int kDecoded = 32 / kBits;
  static constexpr int operand_of(int decoded) { return decoded; }
  typedef FloatMac Mac;

  static float pack_operand(const float* elements, int operand) { return elements[operand]; }

  VEC_FN W load(const float* words) { return load_words<kBits>((const uint32_t*)words); }
  template <int kIndex>
  VEC_FN F decode(W words) {
    return decode_quant<kBits, kIndex>(words);
  }

  // x as the products use it: bfloat16 products flush denormals.
  VEC_FN F as_multiplied(F x) { return x; }

  // Calls work(), which packs or multiplies operands, in the floating-point mode that the codec needs.
  template <class Work>
  VEC_FN void in_fp_mode(const Work& work) {
    work();
  }
};

// Writes the operands of the `group_words` words of a quantization group: those of a word to address_of(word)
// and each `stride` floats after it.
template <class Codec, class AddressOf>
VEC_FN void write_operands(const float* x_f32, int group_words, int64_t stride, AddressOf address_of) {
  for (int word = 0; word < group_words; word++, x_f32 += 32 / Codec::kBits) {
    float* const to = address_of(word);
    for (int operand = 0; operand < Codec::kOperands; operand++)
      to[operand * stride] = Codec::pack_operand(x_f32, operand);
  }
}

// Converts the elements of x of a quantization group to float32. Returns sums of as_multiplied(x), which are
// to be added in the order of the lanes.
template <class Codec, Element kElement>
VEC_FN F convert_group(const StorageOf<kElement>* x, int count, float* x_f32) {
  F sum = zero();
  for (int e = 0; e < count; e += kLanes) {
    F part = load_as<kElement>(x + e);
    store(x_f32 + e, part);
    sum = add(sum, Codec::as_multiplied(part));
  }
  return sum;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
