// The parts of a row, each over its own keys, become the whole, always in the same order.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/scores.h"

namespace tiny_llm_ext {

enum { kMergeThreads = 128 };

// Parts (splits, N, L, E) and their log-sum-exps (splits, N, L). A part without keys has an LSE of -inf.
template <typename T>
inline void merge(device const float* parts, device const float* lses, device T* output, device float* lse,
                  constant FastAttentionArguments& args, uint3 group, int thread_index) {
  const int splits = (args.S + args.keys_per_split - 1) / args.keys_per_split;
  const int64_t at_row = int64_t(group.x) * args.L + group.y;
  const int64_t rows = int64_t(args.N) * args.L;

  float top = -INFINITY;
  for (int z = 0; z < splits; z++) top = metal::max(top, lses[z * rows + at_row]);
  const float base = subtrahend(top);
  float sum = 0.0f;
  for (int z = 0; z < splits; z++) sum += metal::exp(lses[z * rows + at_row] - base);
  const float inverse = 1.0f / sum;

  for (int e = thread_index; e < args.E; e += kMergeThreads) {
    float column = 0.0f;
    for (int z = 0; z < splits; z++) {
      column += metal::exp(lses[z * rows + at_row] - base) * parts[(z * rows + at_row) * args.E + e];
    }
    output[at_row * args.E + e] = T(divided(column, sum, inverse));
  }
  if (thread_index == 0) lse[at_row] = base + metal::log(sum);
}

}  // namespace tiny_llm_ext
