// Products with quantized weights in pairs of bfloat16: few rows with the vector unit, where the small
// integers of the weights are exact; many with weights rounded to bfloat16.
#pragma once

#include "cpu/product-inl.h"
#include "cpu/quantized_stream-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// A vector of words gives kFactors vectors of pairs: half bytes a and a + 4 of each word. The two half bytes
// of a byte are factors of the same unit of x; the upper one counts sixteenfold.
template <int kBits_>
struct PairStream {
  static constexpr int kBits = kBits_;
  static constexpr int kUnits = 16 / kBits;
  static constexpr int kFactors = 4;
  static constexpr int unit_of(int factor) { return factor * kUnits / kFactors; }

  static float pack(const float* share, int unit) {
    uint32_t low, high;
    memcpy(&low, share + unit, sizeof low);
    memcpy(&high, share + unit + kUnits, sizeof high);
    return __builtin_bit_cast(float, low >> 16 | (high & 0xffff0000));
  }

  VEC_FN W load(const uint32_t* p) { return _mm512_loadu_si512(p); }
  template <int kFactor>
  VEC_FN F factor(W words) {
    static constexpr PairTable kNumber(8, 1), kLower(0, 1), kUpper(8, 16);
    return look_up<kFactor>(words, kBits == 4 ? kNumber : kFactor % 2 == 0 ? kLower : kUpper);
  }
  VEC_FN F mac(F a, F b, F c) { return dot_pairs(a, b, c); }
};

struct PairsProduct {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kDepth = 256;
  typedef uint16_t Weight;

  struct Mac {
    VEC_FN F mac(F a, F b, F c) { return dot_pairs(a, b, c); }
  };

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  template <Element kElement>
  VEC_FN F read(const uint16_t* row, int64_t K, int step) {
    return load_pairs(row + 2 * step, (int)(K - 2 * step));
  }

  template <int kBits>
  static void widen(const uint8_t* p, int count, F scale, F bias, uint16_t* out) {
    if constexpr (kBits == 4)
      widen_half_bytes(p, count, scale, bias, out);
    else
      for (int e = 0; e < count; e += 2 * kLanes, p += 2 * kLanes)
        store_pairs(out + e, fma(load_u8(p), scale, bias), fma(load_u8(p + kLanes), scale, bias));
  }

  static void multiply(const uint16_t* w, const float* x, int vectors, int depth, float* c) {
    gemm_tile<Mac, true>(vectors, 1, {(const float*)w, kDepth / 2, 1, 0}, x, depth / 2, c, kProductOutputs);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
