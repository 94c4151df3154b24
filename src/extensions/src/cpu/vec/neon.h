// Vectors of 4 floats with Arm NEON (AArch64).
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "cpu/vec/aliased_float.h"

#define VEC_FN static inline __attribute__((always_inline))

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kLanes = 4;
constexpr int kRegisters = 32;
constexpr bool kMaskedLoads = false;

typedef float32x4_t F;
typedef uint32x4_t M;  // all bits of a lane set or clear

VEC_FN F zero() { return vdupq_n_f32(0.0f); }
VEC_FN F set1(float x) { return vdupq_n_f32(x); }
// vld1q_f32 and vst1q_f32 are for memory of floats only, see AliasedFloat.
VEC_FN F load(const float* p) {
  F x;
  memcpy(&x, p, sizeof x);
  return x;
}
VEC_FN void store(float* p, F x) { memcpy(p, &x, sizeof x); }
VEC_FN F keep_in_register(F x) { return x; }  // products take no operand from memory

VEC_FN F add(F a, F b) { return vaddq_f32(a, b); }
VEC_FN F sub(F a, F b) { return vsubq_f32(a, b); }
VEC_FN F mul(F a, F b) { return vmulq_f32(a, b); }
VEC_FN F div(F a, F b) { return vdivq_f32(a, b); }
VEC_FN F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
VEC_FN F max(F a, F b) { return vmaxq_f32(a, b); }  // NaN where either is NaN
VEC_FN F min(F a, F b) { return vminq_f32(a, b); }

VEC_FN F pow2_from_low_bits(F x) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(x), 23)); }
#include "cpu/vec/exp2.h"

VEC_FN M less_equal(F a, F b) { return vcleq_f32(a, b); }
VEC_FN M equal(F a, F b) { return vceqq_f32(a, b); }
VEC_FN M mask_and(M a, M b) { return vandq_u32(a, b); }
VEC_FN bool all(M m) { return vminvq_u32(m) != 0; }
VEC_FN F select(M m, F yes, F no) { return vbslq_f32(m, yes, no); }

VEC_FN F load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
VEC_FN void store_f16(uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

VEC_FN F load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
VEC_FN void store_bf16(uint16_t* p, F x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t nearest = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));  // rounding a NaN could make it infinite
  vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), nearest, quiet), 16));
}

VEC_FN F load_u4(const uint8_t* p) {
  const int32x4_t down = {0, -4, -8, -12};
  const uint32x4_t word = vdupq_n_u32(p[0] | (uint32_t)p[1] << 8);
  return vcvtq_f32_u32(vandq_u32(vshlq_u32(word, down), vdupq_n_u32(15)));
}
VEC_FN F load_u8(const uint8_t* p) {
  uint32_t word;
  memcpy(&word, p, sizeof word);
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word)))));
}

typedef int32x4_t W;

template <int kBits>
VEC_FN W load_words(const uint32_t* p) {
  const uint32_t top = kBits == 4 ? 0x88888888 : 0x80808080;
  return vreinterpretq_s32_u32(veorq_u32(vreinterpretq_u32_f32(load((const float*)p)), vdupq_n_u32(top)));
}
template <int kBits, int kIndex>
VEC_FN F decode_quant(W words) {
  const W up = vshlq_n_s32(words, 32 - kBits - kBits * kIndex);
  return vcvtq_f32_s32(vshrq_n_s32(up, 32 - kBits));
}

VEC_FN F permute(F x, const int32_t* from) {
  const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), vld1q_u32((const uint32_t*)from), 0x04040404);
  return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), vreinterpretq_u8_u32(bytes)));
}

template <int G>
VEC_FN F broadcast(const float* p) {
  static_assert(G == 1 || G == 2 || G == 4, "a power of two up to the number of lanes");
  if constexpr (G == 1) return vdupq_n_f32(*(const AliasedFloat*)p);
  if constexpr (G == 2) {
    float32x2_t pair;
    memcpy(&pair, p, sizeof pair);
    return vcombine_f32(pair, pair);
  }
  if constexpr (G == 4) return load(p);
}

template <int G>
VEC_FN F sum_neighbours(F x) {
  static_assert(G == 1 || G == 2 || G == 4, "a power of two up to the number of lanes");
  if constexpr (G >= 2) x = add(x, vrev64q_f32(x));
  if constexpr (G >= 4) x = add(x, vextq_f32(x, x, 2));
  return x;
}

VEC_FN void transpose(F rows[kLanes]) {
  const float32x4x2_t upper = vtrnq_f32(rows[0], rows[1]);
  const float32x4x2_t lower = vtrnq_f32(rows[2], rows[3]);
  for (int i = 0; i < 2; ++i) {
    rows[i] = vcombine_f32(vget_low_f32(upper.val[i]), vget_low_f32(lower.val[i]));
    rows[i + 2] = vcombine_f32(vget_high_f32(upper.val[i]), vget_high_f32(lower.val[i]));
  }
}

VEC_FN F sum_lanes(const float* p, int64_t stride) {
  return vpaddq_f32(vpaddq_f32(load(p), load(p + stride)),
                    vpaddq_f32(load(p + 2 * stride), load(p + 3 * stride)));
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
