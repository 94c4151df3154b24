// Attention of a few query rows over many keys: the keys are shared out, the row is not.
//
// A threadgroup computes one query row of one head, or its part of the keys where they are split. Its SIMD
// groups take every 8th key each, with a softmax of their own; a lane holds every 32nd element of the row. At
// the end the SIMD groups lay together what they have.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/arguments.h"
#include "metal/kernels/mask.h"

namespace tiny_llm_ext {

enum { kDecodeSimdGroups = 8 };

template <typename T, typename Out, int E>
inline void decode(device const T* query, device const T* key, device const T* value,
                   device const uchar* mask, device Out* output, device float* lse,
                   constant AttentionArguments& args, threadgroup float* o_of, threadgroup float* m_of,
                   threadgroup float* l_of, uint3 group, uint simd_group, uint simd_lane) {
  constexpr int kElements = (E + 31) / 32;
  const int L = args.L, S = args.S;
  const int n = int(group.x), row = int(group.y), me = int(simd_group), lane = int(simd_lane);
  const int64_t at_row = int64_t(n) * L + row;
  const int64_t at_part = int64_t(group.z) * args.N * L + at_row;
  const int64_t at_keys = int64_t(n / args.group) * S * E;
  const int64_t at_mask = (n / args.heads) * args.mask_batch_stride +
                          (n % args.heads) * args.mask_head_stride + row * args.mask_row_stride;
  const int first = int(group.z) * args.keys_per_split;
  const int visible = args.causal ? row + (S - L) + 1 : S;
  const int end = metal::min(visible, first + args.keys_per_split);

  float q[kElements], o[kElements];
  for (int i = 0; i < kElements; i++) {
    const int e = i * 32 + lane;
    q[i] = e < E ? args.scale * float(query[at_row * E + e]) : 0.0f;
    o[i] = 0.0f;
  }

  float m = -INFINITY;
  float l = 0.0f;
  for (int j = first + me; j < end; j += kDecodeSimdGroups) {
    const int64_t at_key = at_keys + int64_t(j) * E;
    float part = 0.0f;
    for (int i = 0; i < kElements; i++) {
      const int e = i * 32 + lane;
      if (e < E) part += q[i] * float(key[at_key + e]);
    }
    float s = metal::simd_sum(part);
    if (args.mask_kind != kNoMask) {
      s = masked(s, mask_bias(mask, at_mask + j * args.mask_key_stride, args.mask_kind));
    }
    const float m_new = metal::max(m, s);
    const float base = m_new == -INFINITY ? 0.0f : m_new;
    const float alpha = metal::exp(m - base);
    const float p = metal::exp(s - base);
    l = alpha * l + p;
    m = m_new;
    for (int i = 0; i < kElements; i++) {
      const int e = i * 32 + lane;
      if (e < E) o[i] = alpha * o[i] + p * float(value[at_key + e]);
    }
  }

  for (int i = 0; i < kElements; i++) {
    const int e = i * 32 + lane;
    if (e < E) o_of[me * E + e] = o[i];
  }
  if (lane == 0) {
    m_of[me] = m;
    l_of[me] = l;
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  float top = -INFINITY;
  for (int g = 0; g < kDecodeSimdGroups; g++) top = metal::max(top, m_of[g]);
  const float base = top == -INFINITY ? 0.0f : top;
  float sum = 0.0f;
  for (int g = 0; g < kDecodeSimdGroups; g++) sum += metal::exp(m_of[g] - base) * l_of[g];
  const float inverse = 1.0f / sum;
  for (int e = me * 32 + lane; e < E; e += 32 * kDecodeSimdGroups) {
    float column = 0.0f;
    for (int g = 0; g < kDecodeSimdGroups; g++) column += metal::exp(m_of[g] - base) * o_of[g * E + e];
    output[at_part * E + e] = Out(sum == 0.0f ? 0.0f : column * inverse);
  }
  if (me == 0 && lane == 0) lse[at_part] = top + metal::log(sum);
}

}  // namespace tiny_llm_ext
