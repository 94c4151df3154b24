// Merges the parts of a row, each over its own keys, in a fixed order.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/scores.h"

namespace tiny_llm_ext {

enum { kMergeThreads = 128 };

// Parts (splits, N, L, E) are sums of weighted values, sums (splits, N, L, 2) the maximum m and the sum l of
// their weights. A log-sum-exp in their place would lose log(l) beside a maximum such as -1e30.
template <typename T>
inline void merge(device const float* parts, device const float* sums, device T* output, device float* lse,
                  constant FastAttentionArguments& args, uint3 group, int thread_index) {
  const int splits = (args.S + args.keys_per_split - 1) / args.keys_per_split;
  const int64_t at_row = int64_t(group.x) * args.L + group.y;
  const int64_t rows = int64_t(args.N) * args.L;

  float m = -INFINITY;
  for (int z = 0; z < splits; z++) m = metal::max(m, sums[(z * rows + at_row) * 2]);
  const float base = subtrahend(m);
  float l = 0.0f;
  for (int z = 0; z < splits; z++) {
    const int64_t at = (z * rows + at_row) * 2;
    l += metal::exp(sums[at] - base) * sums[at + 1];
  }

  const float inverse = 1.0f / l;
  for (int e = thread_index; e < args.E; e += kMergeThreads) {
    float column = 0.0f;
    for (int z = 0; z < splits; z++) {
      const int64_t at = z * rows + at_row;
      column += metal::exp(sums[at * 2] - base) * parts[at * args.E + e];
    }
    output[at_row * args.E + e] = T(divided(column, l, inverse));
  }
  if (thread_index == 0) lse[at_row] = m + metal::log(l);
}

}  // namespace tiny_llm_ext
