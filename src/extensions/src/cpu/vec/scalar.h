// Vectors of 4 floats in plain C++, with the vector types that GCC and Clang offer on every machine.
//
// The reference of the interface: every vec/<isa>.h defines the same types, constants and functions. max and
// min give NaN if the second operand is NaN; with NaN only in the first, the result depends on the
// instruction set.
#pragma once

#include <stdint.h>
#include <string.h>

#include "cpu/vec/aliased_float.h"

#define VEC_FN static inline __attribute__((always_inline))

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kLanes = 4;
constexpr int kRegisters = 16;        // the fewest a supported machine has
constexpr bool kMaskedLoads = false;  // whether load_first*() exist

typedef float F __attribute__((vector_size(16)));
typedef int32_t M __attribute__((vector_size(16)));  // all bits of a lane set or clear
typedef uint32_t U __attribute__((vector_size(16)));
typedef uint16_t H __attribute__((vector_size(8)));

VEC_FN F zero() { return F{}; }
VEC_FN F set1(float x) { return F{x, x, x, x}; }
VEC_FN F load(const float* p) {
  F x;
  memcpy(&x, p, sizeof x);
  return x;
}
VEC_FN void store(float* p, F x) { memcpy(p, &x, sizeof x); }
VEC_FN F keep_in_register(F x) { return x; }  // see avx2.h; not measured here

VEC_FN F add(F a, F b) { return a + b; }
VEC_FN F sub(F a, F b) { return a - b; }
VEC_FN F mul(F a, F b) { return a * b; }
VEC_FN F div(F a, F b) { return a / b; }
VEC_FN F fma(F a, F b, F c) { return a * b + c; }

VEC_FN M less_equal(F a, F b) { return a <= b; }
VEC_FN M equal(F a, F b) { return a == b; }
VEC_FN M mask_and(M a, M b) { return a & b; }
VEC_FN bool all(M m) { return (m[0] & m[1] & m[2] & m[3]) != 0; }
VEC_FN U select(M m, U yes, U no) { return ((U)m & yes) | (~(U)m & no); }
VEC_FN F select(M m, F yes, F no) { return (F)select(m, (U)yes, (U)no); }
VEC_FN F max(F a, F b) { return select(a > b, a, b); }  // b where either is NaN
VEC_FN F min(F a, F b) { return select(a < b, a, b); }

VEC_FN F pow2_from_low_bits(F x) { return (F)((U)x << 23); }
#include "cpu/vec/exp2.h"

VEC_FN U load_u16(const uint16_t* p) {
  H x;
  memcpy(&x, p, sizeof x);
  return __builtin_convertvector(x, U);
}
VEC_FN void store_u16(uint16_t* p, U x) {
  const H half = __builtin_convertvector(x, H);
  memcpy(p, &half, sizeof half);
}

// A float16 has 5 exponent bits with bias 15 and 10 fraction bits; a float has 8 with bias 127 and 23.
VEC_FN F load_f16(const uint16_t* p) {
  const U half = load_u16(p);
  const U magnitude = half & 0x7fff;
  const U normal = (magnitude << 13) + ((127 - 15) << 23);
  const U special = normal + ((127 - 15) << 23);  // infinity and NaN: the exponent goes from 31 to 255
  const U subnormal = (U)(__builtin_convertvector((M)magnitude, F) * 0x1p-24f);
  const U finite = select(magnitude < 0x0400, subnormal, normal);
  return (F)(select(magnitude >= 0x7c00, special, finite) | (half & 0x8000) << 16);
}
VEC_FN void store_f16(uint16_t* p, F x) {
  const U bits = (U)x, magnitude = bits & 0x7fffffff;
  const U normal = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const U subnormal = (U)((F)magnitude + 0.5f) - 0x3f000000;  // the addition rounds to a multiple of 2^-24
  const U finite = select(magnitude < 0x38800000, subnormal, normal);
  const U special = select(magnitude > 0x7f800000, (U){} + 0x7e00, (U){} + 0x7c00);
  store_u16(p, select(magnitude >= 0x477ff000, special, finite) |
                   (bits >> 16 & 0x8000));  // from 65520 on: infinity
}

VEC_FN F load_bf16(const uint16_t* p) { return (F)(load_u16(p) << 16); }
VEC_FN void store_bf16(uint16_t* p, F x) {
  const U bits = (U)x;
  const U nearest = bits + 0x7fff + (bits >> 16 & 1);
  const U quiet = bits | 0x400000;  // rounding a NaN could make it infinite
  store_u16(p, select(x == x, nearest, quiet) >> 16);
}

// kLanes quants of 4 or 8 bits as floats, the lowest bits first.
VEC_FN F load_u4(const uint8_t* p) {
  return F{(float)(p[0] & 15), (float)(p[0] >> 4), (float)(p[1] & 15), (float)(p[1] >> 4)};
}
VEC_FN F load_u8(const uint8_t* p) { return F{(float)p[0], (float)p[1], (float)p[2], (float)p[3]}; }

// Packed words. decode_quant: quant kIndex of each, the lowest bits first, minus half the range, so that sums
// are exact for longer.
typedef M W;

template <int kBits>
VEC_FN W load_words(const uint32_t* p) {
  U words;
  memcpy(&words, p, sizeof words);
  return (W)(words ^ (kBits == 4 ? 0x88888888 : 0x80808080));
}
template <int kBits, int kIndex>
VEC_FN F decode_quant(W words) {
  const W up = (W)((U)words << (32 - kBits - kBits * kIndex));
  return __builtin_convertvector(up >> (32 - kBits), F);
}

// Lane i takes lane from[i] of x.
VEC_FN F permute(F x, const int32_t* from) { return F{x[from[0]], x[from[1]], x[from[2]], x[from[3]]}; }

// p[0] to p[G - 1], repeated.
template <int G>
VEC_FN F broadcast(const float* p) {
  static_assert(G == 1 || G == 2 || G == 4, "a power of two up to the number of lanes");
  const AliasedFloat* from = p;
  return F{from[0], from[1 % G], from[2 % G], from[3 % G]};
}

// In every lane the sum of the G neighbouring lanes that it belongs to.
template <int G>
VEC_FN F sum_neighbours(F x) {
  static_assert(G == 1 || G == 2 || G == 4, "a power of two up to the number of lanes");
  if constexpr (G >= 2) x += F{x[1], x[0], x[3], x[2]};
  if constexpr (G >= 4) x += F{x[2], x[3], x[0], x[1]};
  return x;
}

VEC_FN void transpose(F rows[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float below = rows[i][j];
      rows[i][j] = rows[j][i];
      rows[j][i] = below;
    }
  }
}

// Lane i: the sum of the lanes of the vector at p + i * stride.
VEC_FN F sum_lanes(const float* p, int64_t stride) {
  F sums;
  for (int i = 0; i < kLanes; i++, p += stride) sums[i] = (p[0] + p[1]) + (p[2] + p[3]);
  return sums;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
