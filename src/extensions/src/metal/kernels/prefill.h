// Attention of many query rows on the matrix units: scores, weights and output stay in registers.
//
// A threadgroup computes 32 query rows of one head; each of its 4 SIMD groups owns 8 of them, the rows of its
// fragments. Keys and values are loaded in turn into one tile of threadgroup memory.
#pragma once

#include "metal/kernels/online_softmax.h"
#include "metal/kernels/tile.h"

namespace tiny_llm_ext {

// A thread has about 128 registers. Up to head size 128 they hold query and output; for larger heads only the
// output, and the query is read again for each tile.
template <int kHeadSize>
constexpr bool query_stays() {
  return kHeadSize <= 128;
}

// Eight columns of the query, from e * 8 on.
template <typename T>
inline void load_query(thread Fragment& q, device const T* row, int e, int column, int columns) {
  const int at = e * 8 + column;
  set_fragment(q, at < columns ? float(row[at]) : 0.0f, at + 1 < columns ? float(row[at + 1]) : 0.0f);
}

// s = q k^T. `row` and `column` are the lane's place in every fragment; `query` is its row in memory.
template <typename T, int kHeadSize, int kKeys>
inline void multiply_keys(thread Fragment* s, thread Fragment* q, threadgroup const T* tile,
                          device const T* query, int columns, int row, int column) {
  constexpr int kStride = tile_stride<T, kHeadSize>();
  TINY_LLM_UNROLL
  for (int k = 0; k < kKeys / 8; k++) set_fragment(s[k], 0.0f, 0.0f);
  TINY_LLM_UNROLL
  for (int e = 0; e < kHeadSize / 8; e++) {
    const int of_query = query_stays<kHeadSize>() ? e : 0;
    if (!query_stays<kHeadSize>()) load_query(q[0], query, e, column, columns);
    TINY_LLM_UNROLL
    for (int k = 0; k < kKeys / 8; k++) {
      const int at = (k * 8 + column) * kStride + e * 8 + row;
      Fragment keys;  // transposed: its columns are keys
      set_fragment(keys, float(tile[at]), float(tile[at + kStride]));
      metal::simdgroup_multiply_accumulate(s[k], q[of_query], keys, s[k]);
    }
  }
}

// o = alpha o + p v.
template <typename T, int kHeadSize, int kKeys>
inline void add_values(thread Fragment* o, thread const Fragment* p, threadgroup const T* tile, float alpha,
                       int row, int column) {
  constexpr int kStride = tile_stride<T, kHeadSize>();
  TINY_LLM_UNROLL
  for (int e = 0; e < kHeadSize / 8; e++) {
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

// Adds the values that clear_other_values() has taken out of a tile to the output of a row that sees their
// keys. A weight above 0 does not change them.
template <typename T, int kHeadSize, int kKeys>
inline void add_other_values(thread Fragment* o, thread const Tensors<T>& in, device const T* value,
                             constant FastAttentionArguments& args, int64_t at_mask, int begin,
                             thread const KeyRange& seen, int columns, int column) {
  for (int t = metal::max(begin, seen.begin); t < metal::min(begin + kKeys, seen.end); t++) {
    if (mask_kind != kNoMask && mask_bias(in.mask, at_mask + t * args.mask.key, mask_kind) == -INFINITY) {
      continue;
    }
    device const T* row = value + t * args.value.row;
    TINY_LLM_UNROLL
    for (int e = 0; e < kHeadSize / 8; e++) {
      TINY_LLM_UNROLL
      for (int i = 0; i < 2; i++) {
        const int at = e * 8 + column + i;
        const float x = at < columns ? float(row[at]) : 0.0f;
        if (!is_finite(x)) o[e].thread_elements()[i] += x;
      }
    }
  }
}

template <typename T, int kHeadSize, int kKeys>
inline void prefill(thread const Tensors<T>& in, device T* output, device float* lse,
                    constant FastAttentionArguments& args, threadgroup T* tile, threadgroup float* others,
                    uint3 group, uint simd_group, uint simd_lane) {
  constexpr int kSimdGroups = 4, kRows = 8 * kSimdGroups, kThreads = 32 * kSimdGroups;
  constexpr int kFragments = kHeadSize / 8;
  constexpr metal::mem_flags of_threadgroup = metal::mem_flags::mem_threadgroup;
  const int n = int(group.x), thread_index = int(simd_group * 32 + simd_lane);
  const int r = fragment_row(int(simd_lane)), c = fragment_column(int(simd_lane));
  const int first_row = int(group.y) * kRows, own_row = first_row + int(simd_group) * 8, row = own_row + r;

  const Place<T> place = place_of(in, n, args);
  const int columns = real_columns<kHeadSize>(args);
  device const T* query = place.query + row * args.query.row;
  const int64_t at_mask = place.at_mask + row * args.mask.row;
  const bool is_real = row < place.n_q;  // others are padding
  const int query_columns = is_real ? columns : 0;

  Fragment q[query_stays<kHeadSize>() ? kFragments : 1], s[kKeys / 8], o[kFragments];
  TINY_LLM_UNROLL
  for (int e = 0; e < kFragments; e++) {
    if (query_stays<kHeadSize>()) load_query(q[e], query, e, c, query_columns);
    set_fragment(o[e], 0.0f, 0.0f);
  }

  RowState state;
  state.m = is_real ? place.sink : -INFINITY;
  state.l = c == 0 ? first_weight(state.m) : 0.0f;
  const KeyRange seen = seen_keys(row, row, place.n_q, place.n_k, args);
  const KeyRange of_fragment = seen_keys(own_row, own_row + 7, place.n_q, place.n_k, args);
  const KeyRange of_tile = seen_keys(first_row, first_row + kRows - 1, place.n_q, place.n_k, args);
  // The keys that all rows see, if there is no mask.
  const int last_row = metal::min(first_row + kRows, place.n_q) - 1;
  const KeyRange of_all = {seen_keys(last_row, last_row, place.n_q, place.n_k, args).begin,
                           seen_keys(first_row, first_row, place.n_q, place.n_k, args).end};
  for (int begin = of_tile.begin / kKeys * kKeys; begin < of_tile.end; begin += kKeys) {
    // The same for all lanes of a SIMD group, which may have no rows.
    const bool takes_part = begin < of_fragment.end && begin + kKeys > of_fragment.begin;
    float alpha = 1.0f;
    metal::threadgroup_barrier(of_threadgroup);  // the values have been read
    load_tile<T, kHeadSize, kKeys, kThreads>(tile, place.key, args.key.row, begin, place.n_k, columns,
                                             thread_index);
    metal::threadgroup_barrier(of_threadgroup);
    if (takes_part) {
      multiply_keys<T, kHeadSize, kKeys>(s, q, tile, query, query_columns, r, c);
      const float top = finish_scores<kKeys / 8>(s, args, in.mask, at_mask, begin, seen, c);
      alpha = online_softmax<kKeys / 8>(state, s, top);
    }

    metal::threadgroup_barrier(of_threadgroup);  // the keys have been read
    load_tile<T, kHeadSize, kKeys, kThreads>(tile, place.value, args.value.row, begin, place.n_k, columns,
                                             thread_index);
    const bool hides =
        mask_kind != kNoMask || (has_window && (begin < of_all.begin || begin + kKeys > of_all.end));
    if (hides) {
      const float found = clear_other_values<T, kHeadSize, kKeys, kThreads>(tile, thread_index);
      const float any_found = metal::simd_max(found);
      if (simd_lane == 0) others[simd_group] = any_found;
    }
    metal::threadgroup_barrier(of_threadgroup);
    if (takes_part) add_values<T, kHeadSize, kKeys>(o, s, tile, alpha, r, c);
    if (hides && takes_part && others[0] + others[1] + others[2] + others[3] != 0.0f) {
      add_other_values<T, kHeadSize, kKeys>(o, in, place.value, args, at_mask, begin, seen, columns, c);
    }
  }

  const float l = row_sum(state.l);
  if (row >= args.L) return;
  const float inverse = 1.0f / l;
  const int64_t at_row = int64_t(n) * args.L + row;
  TINY_LLM_UNROLL
  for (int e = 0; e < kFragments; e++) {
    for (int i = 0; i < 2; i++) {
      const int column = e * 8 + c + i;
      if (column < columns) {
        output[at_row * columns + column] = T(divided(o[e].thread_elements()[i], l, inverse));
      }
    }
  }
  if (c == 0) lse[at_row] = state.m + metal::log(l);
}

}  // namespace tiny_llm_ext
