// Attention of a few query rows over many keys: a threadgroup has one query row of one head, and divides its
// keys.
//
// Each SIMD group takes every 8th key, with a softmax of its own; a lane holds a few neighbouring elements of
// the row. At the end the results of the SIMD groups are combined in threadgroup memory. With split keys, a
// threadgroup has one split and writes a part for merge.h: the undivided sum of values, and the maximum and
// the sum of the weights in place of the log-sum-exp.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/scores.h"
#include "metal/kernels/unroll.h"

namespace tiny_llm_ext {

enum {
  kDecodeSimdGroups = 8,
  kDecodeKeys = 4,  // keys that a SIMD group processes at a time
};

// Whether the row has element e; a compile-time constant where rows fill all lanes.
template <int kHeadSize>
inline bool is_column(int e, int E) {
  return (kHeadSize % 32 == 0 && !has_padded_head) || e < E;
}

// How many neighbouring elements of a row a lane holds.
template <int kHeadSize>
constexpr int lane_elements() {
  return (kHeadSize + 31) / 32;
}

// The dot product of the query with a row, in all lanes.
template <typename T, int kHeadSize>
inline float product(thread const float* q, device const T* row, int lane, int E) {
  constexpr int kElements = lane_elements<kHeadSize>();
  float part = 0.0f;
  TINY_LLM_UNROLL
  for (int i = 0; i < kElements; i++) {
    const int e = lane * kElements + i;
    if (is_column<kHeadSize>(e, E)) part += q[i] * float(row[e]);
  }
  return metal::simd_sum(part);
}

// o = o + weight row.
template <typename T, int kHeadSize>
inline void add_row(thread float* o, float weight, device const T* row, int lane, int E) {
  constexpr int kElements = lane_elements<kHeadSize>();
  TINY_LLM_UNROLL
  for (int i = 0; i < kElements; i++) {
    const int e = lane * kElements + i;
    if (is_column<kHeadSize>(e, E)) o[i] += weight * float(row[e]);
  }
}

template <typename T, typename Out, bool kPart, int kHeadSize>
inline void decode(thread const Tensors<T>& in, device Out* output, device float* lse,
                   constant FastAttentionArguments& args, threadgroup float* o_of, threadgroup float* m_of,
                   threadgroup float* l_of, uint3 group, uint simd_group, uint simd_lane) {
  constexpr int kElements = lane_elements<kHeadSize>();
  const int n = int(group.x), row = int(group.y), split = int(group.z);
  const int me = int(simd_group), lane = int(simd_lane);

  const Place<T> place = place_of(in, n, args);
  const int E = real_columns<kHeadSize>(args);
  device const T* query = place.query + row * args.query.row;
  const int64_t at_mask = place.at_mask + row * args.mask.row;

  float q[kElements], o[kElements];
  TINY_LLM_UNROLL
  for (int i = 0; i < kElements; i++) {
    const int e = lane * kElements + i;
    q[i] = is_column<kHeadSize>(e, E) ? args.scale * float(query[e]) : 0.0f;
    o[i] = 0.0f;
  }

  const KeyRange seen = seen_keys(row, row, place.n_q, place.n_k, args);
  const int first = split * args.keys_per_split;
  const int begin = metal::max(seen.begin, first);
  const int end = metal::min(seen.end, first + args.keys_per_split);
  float m = -INFINITY;
  float l = 0.0f;
  for (int t = begin + me; t < end; t += kDecodeSimdGroups * kDecodeKeys) {
    // Several independent sums at a time. Beyond the end, the last key is read again and its score hidden.
    float s[kDecodeKeys], top = m;
    TINY_LLM_UNROLL
    for (int k = 0; k < kDecodeKeys; k++) {
      const int j = metal::min(t + k * kDecodeSimdGroups, end - 1);
      float score = capped(product<T, kHeadSize>(q, place.key + j * args.key.row, lane, E), args);
      if (mask_kind != kNoMask) {
        score = masked(score, mask_bias(in.mask, at_mask + j * args.mask.key, mask_kind));
      }
      s[k] = t + k * kDecodeSimdGroups < end ? score : -INFINITY;
      top = metal::max(top, s[k]);
    }

    const float base = subtrahend(top);
    const float alpha = metal::exp(m - base);
    m = top;
    l *= alpha;
    TINY_LLM_UNROLL
    for (int i = 0; i < kElements; i++) o[i] *= alpha;
    TINY_LLM_UNROLL
    for (int k = 0; k < kDecodeKeys; k++) {
      if (s[k] == -INFINITY) continue;  // uniform over the lanes; values of hidden keys are not read
      const float p = metal::exp(s[k] - base);
      l += p;
      device const T* value = place.value + (t + k * kDecodeSimdGroups) * args.value.row;
      add_row<T, kHeadSize>(o, p, value, lane, E);
    }
  }

  TINY_LLM_UNROLL
  for (int i = 0; i < kElements; i++) {
    const int e = lane * kElements + i;
    if (is_column<kHeadSize>(e, E)) o_of[me * E + e] = o[i];
  }
  if (lane == 0) {
    m_of[me] = m;
    l_of[me] = l;
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  // Only the first split counts the sink.
  const float sink = split == 0 && row < place.n_q ? place.sink : -INFINITY;
  float top = sink;
  for (int g = 0; g < kDecodeSimdGroups; g++) top = metal::max(top, m_of[g]);
  const float base = subtrahend(top);
  float sum = metal::exp(sink - base);
  for (int g = 0; g < kDecodeSimdGroups; g++) sum += metal::exp(m_of[g] - base) * l_of[g];

  const float inverse = 1.0f / sum;
  const int64_t at_row = (int64_t(split) * args.N + n) * args.L + row;
  for (int e = me * 32 + lane; e < E; e += 32 * kDecodeSimdGroups) {
    float column = 0.0f;
    for (int g = 0; g < kDecodeSimdGroups; g++) column += metal::exp(m_of[g] - base) * o_of[g * E + e];
    output[at_row * E + e] = Out(kPart ? column : divided(column, sum, inverse));
  }
  if (me != 0 || lane != 0) return;
  if (kPart) {
    lse[at_row * 2] = top;
    lse[at_row * 2 + 1] = sum;
  } else {
    lse[at_row] = top + metal::log(sum);
  }
}

}  // namespace tiny_llm_ext
