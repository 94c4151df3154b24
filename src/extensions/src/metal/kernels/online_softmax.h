// Online softmax of the prefill kernel: scores to weights, tile after tile.
#pragma once

#include "metal/kernels/fragment.h"
#include "metal/kernels/scores.h"

namespace tiny_llm_ext {

// m is the running maximum of the row, the same in all its lanes; l is the running sum over the lane's own
// columns.
struct RowState {
  float m, l;
};

// Turns products of query and keys, from key `begin` on, into scores; hidden ones are -inf. Returns the
// lane's maximum.
template <int kFragments>
inline float finish_scores(thread Fragment* s, constant FastAttentionArguments& args,
                           device const uchar* mask, int64_t at_mask, int begin, thread const KeyRange& seen,
                           int column) {
  float top = -INFINITY;
  TINY_LLM_UNROLL
  for (int k = 0; k < kFragments; k++) {
    for (int i = 0; i < 2; i++) {
      const int t = begin + k * 8 + column + i;
      float score = -INFINITY;
      if (t < seen.end && (!has_window || t >= seen.begin)) {
        score = capped(args.scale * s[k].thread_elements()[i], args);
        if (mask_kind != kNoMask) {
          score = masked(score, mask_bias(mask, at_mask + t * args.mask.key, mask_kind));
        }
      }
      s[k].thread_elements()[i] = score;
      top = metal::max(top, score);
    }
  }
  return top;
}

// Turns scores into weights. Returns the factor that rescales the output so far.
template <int kFragments>
inline float online_softmax(thread RowState& row, thread Fragment* s, float top) {
  const float m = metal::max(row.m, row_max(top));
  const float base = subtrahend(m);
  const float alpha = metal::exp(row.m - base);
  row.m = m;
  row.l *= alpha;
  TINY_LLM_UNROLL
  for (int k = 0; k < kFragments; k++) {
    const float first = metal::exp(s[k].thread_elements()[0] - base);
    const float second = metal::exp(s[k].thread_elements()[1] - base);
    set_fragment(s[k], first, second);
    row.l += first + second;
  }
  return alpha;
}

}  // namespace tiny_llm_ext
