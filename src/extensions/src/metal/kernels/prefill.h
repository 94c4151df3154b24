// Attention of many query rows on the matrix units: scores, weights and output stay in registers.
//
// A threadgroup computes 32 query rows of one head; each of its 4 SIMD groups owns 8 of them, the rows of its
// fragments. Keys and values take turns in one tile of threadgroup memory.
#pragma once

#include "metal/kernels/online_softmax.h"
#include "metal/kernels/tile.h"

namespace tiny_llm_ext {

// s = q k^T. A lane's elements stand in `row` and `column` of every fragment.
template <typename T, int E, int kKeys>
inline void multiply_keys(thread Fragment* s, thread const Fragment* q, threadgroup const T* tile, int row,
                          int column) {
  constexpr int kStride = tile_stride<T, E>();
  TINY_LLM_UNROLL
  for (int k = 0; k < kKeys / 8; k++) {
    set_fragment(s[k], 0.0f, 0.0f);
    TINY_LLM_UNROLL
    for (int e = 0; e < E / 8; e++) {
      const int at = (k * 8 + column) * kStride + e * 8 + row;
      Fragment keys;  // transposed: its columns are keys
      set_fragment(keys, float(tile[at]), float(tile[at + kStride]));
      metal::simdgroup_multiply_accumulate(s[k], q[e], keys, s[k]);
    }
  }
}

// o = alpha o + p v.
template <typename T, int E, int kKeys>
inline void add_values(thread Fragment* o, thread const Fragment* p, threadgroup const T* tile, float alpha,
                       int row, int column) {
  constexpr int kStride = tile_stride<T, E>();
  TINY_LLM_UNROLL
  for (int e = 0; e < E / 8; e++) {
    set_fragment(o[e], alpha * o[e].thread_elements()[0], alpha * o[e].thread_elements()[1]);
    TINY_LLM_UNROLL
    for (int k = 0; k < kKeys / 8; k++) {
      const int at = (k * 8 + row) * kStride + e * 8 + column;
      Fragment values;
      set_fragment(values, float(tile[at]), float(tile[at + 1]));
      metal::simdgroup_multiply_accumulate(o[e], p[k], values, o[e]);
    }
  }
}

template <typename T, int E, int kKeys>
inline void prefill(device const T* query, device const T* key, device const T* value,
                    device const uchar* mask, device T* output, device float* lse,
                    constant AttentionArguments& args, threadgroup T* tile, uint3 group, uint simd_group,
                    uint simd_lane) {
  constexpr int kSimdGroups = 4, kRows = 8 * kSimdGroups, kThreads = 32 * kSimdGroups;
  const metal::mem_flags of_threadgroup = metal::mem_flags::mem_threadgroup;
  const int L = args.L, S = args.S;
  const int n = int(group.x), thread_index = int(simd_group * 32 + simd_lane);
  const int r = fragment_row(int(simd_lane)), c = fragment_column(int(simd_lane));
  const int row = int(group.y) * kRows + int(simd_group) * 8 + r;

  const int64_t at_row = (int64_t(n) * L + row) * E;
  const int64_t at_keys = int64_t(n / args.group) * S * E;
  const int64_t at_mask = (n / args.heads) * args.mask_batch_stride +
                          (n % args.heads) * args.mask_head_stride + row * args.mask_row_stride;

  Fragment q[E / 8], s[kKeys / 8], o[E / 8];
  TINY_LLM_UNROLL
  for (int e = 0; e < E / 8; e++) {
    device const T* pair = query + at_row + e * 8 + c;
    set_fragment(q[e], row < L ? float(pair[0]) : 0.0f, row < L ? float(pair[1]) : 0.0f);
    set_fragment(o[e], 0.0f, 0.0f);
  }

  // The keys that this row sees lie before `end`, those that any row of the threadgroup sees before
  // `last_end`.
  const int last_row = metal::min(int(group.y) * kRows + kRows, L) - 1;
  const int last_end = args.causal ? last_row + (S - L) + 1 : S;
  const int end = row >= L ? 0 : args.causal ? row + (S - L) + 1 : S;

  RowState state;
  state.m = -INFINITY;
  state.l = 0.0f;
  for (int begin = 0; begin < last_end; begin += kKeys) {
    metal::threadgroup_barrier(of_threadgroup);  // the values have been read
    load_tile<T, E, kKeys, kThreads>(tile, key + at_keys, begin, S, thread_index);
    metal::threadgroup_barrier(of_threadgroup);
    multiply_keys<T, E, kKeys>(s, q, tile, r, c);
    const float top = finish_scores<kKeys / 8>(s, args, mask, at_mask, begin, end, c);
    const float alpha = online_softmax<kKeys / 8>(state, s, top);

    metal::threadgroup_barrier(of_threadgroup);  // the keys have been read
    load_tile<T, E, kKeys, kThreads>(tile, value + at_keys, begin, S, thread_index);
    metal::threadgroup_barrier(of_threadgroup);
    add_values<T, E, kKeys>(o, s, tile, alpha, r, c);
  }

  const float l = row_sum(state.l);
  if (row >= L) return;
  const float inverse = 1.0f / l;
  TINY_LLM_UNROLL
  for (int e = 0; e < E / 8; e++) {
    device T* pair = output + at_row + e * 8 + c;
    for (int i = 0; i < 2; i++) pair[i] = T(l == 0.0f ? 0.0f : o[e].thread_elements()[i] * inverse);
  }
  if (c == 0) lse[int64_t(n) * L + row] = state.m + metal::log(l);
}

}  // namespace tiny_llm_ext
