// Products with quantized weights in pairs of bfloat16: few rows with the small integers of the weights,
// which are exact; many with weights rounded to bfloat16.
#pragma once

#include "cpu/quantized_many-inl.h"
#include "cpu/quantized_units-inl.h"

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
};

struct PairsMany {
  static constexpr int kPerStep = 2;
  static constexpr int kDepth = 256;

  typedef PairMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  template <Element kElement>
  static size_t packed_bytes(const QuantizedTask& task) {
    return task.x_row_stride % 2 == 0 ? 0 : task.rows * task.groups * task.group * sizeof(uint16_t);
  }
  template <Element kElement>
  static void pack(const QuantizedTask& task, void* packed) {
    const int64_t K = task.groups * task.group;
    for (int64_t m = 0; m < task.rows; m++)
      memcpy((uint16_t*)packed + m * K, (const uint16_t*)task.x + m * task.x_row_stride,
             K * sizeof(uint16_t));
  }

  template <int kBits, int kPair = 0>
  VEC_FN void widen(W word, F scale, F bias, float* out, int64_t stride) {
    if constexpr (kPair < 16 / kBits) {
      store(out + kPair * stride, make_pairs(fma(number<kBits, 2 * kPair>(word), scale, bias),
                                             fma(number<kBits, 2 * kPair + 1>(word), scale, bias)));
      widen<kBits, kPair + 1>(word, scale, bias, out, stride);
    }
  }

  static void multiply(ManyX x, int64_t first, int rows, const float* w, int steps, float* c) {
    gemm_vectors<Mac, true, Walk::along_rows>(kRowVectors, {x.data + first, x.stride, 1, 0}, w, steps, c,
                                              rows);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
