// Codec of packed words for FMA: decodes a word into float32 numbers.
//
// A codec of words says how a vector of packed words meets x in GEMV and skinny products. A word decodes into
// kDecoded vectors; vector i is multiplied with operand operand_of(i) of x. A word meets kOperands operands
// of 32 bits, which pack_operand() makes of the 32 / kBits elements of x beside the word.
#pragma once

#include "cpu/gemm/microkernel-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <int kBits_>
struct F32Codec {
  static constexpr int kBits = kBits_;
  static constexpr bool kInt8 = false;
  static constexpr float kOffset = 1 << (kBits - 1);  // decoded numbers are q - kOffset
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

  // x as the products take it.
  VEC_FN F as_multiplied(F x) { return x; }

  // Calls work(), which packs or multiplies operands, in the floating-point mode that this needs.
  template <class Work>
  VEC_FN void in_fp_mode(const Work& work) {
    work();
  }
};

// Writes the operands beside a quantization group of `group_words` words, from word `word` on, to
// place(word, operand).
template <class Codec, class Place>
VEC_FN void write_operands(const float* wide, int group_words, int64_t word, Place place) {
  for (int i = 0; i < group_words; i++, wide += 32 / Codec::kBits)
    for (int operand = 0; operand < Codec::kOperands; operand++)
      *place(word + i, operand) = Codec::pack_operand(wide, operand);
}

// Widens the elements of x beside a quantization group to float32. Returns their sum, as they are multiplied.
template <class Codec, Element kElement>
VEC_FN float convert_group(const StorageOf<kElement>* x, int count, float* wide) {
  F sum = zero();
  for (int e = 0; e < count; e += kLanes) {
    F part = load_as<kElement>(x + e);
    store(wide + e, part);
    sum = add(sum, Codec::as_multiplied(part));
  }
  float lanes[kLanes], total = 0;
  store(lanes, sum);
  for (int lane = 0; lane < kLanes; lane++) total += lanes[lane];
  return total;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
