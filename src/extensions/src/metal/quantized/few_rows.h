// Packed weights times up to kRows rows. For one token, reading the weights is nearly all of the work: they
// are read once, and unpacked once for all rows.
//
// A SIMD group computes kFewOutputs neighbouring outputs; its lanes divide K. A lane takes every 32nd word of
// each output, so neighbouring lanes read neighbouring words. Sums stay in registers.
#pragma once

#include "metal/kernels/fragment.h"
#include "metal/quantized/weights.h"

namespace tiny_llm_ext {

template <typename T, int kBits, int kRows>
inline void few_rows(device const T* rows, device const uint* words, device const T* scales,
                     device const T* biases, device T* product, constant QuantizedArguments& args, uint group,
                     uint simd_group, uint simd_lane) {
  constexpr int kPerWord = 32 / kBits;
  const int M = args.M, N = args.N, K = args.K, lane = int(simd_lane);
  const int first = int(group * kFewSimdGroups + simd_group) * kFewOutputs;

  float sum[kRows][kFewOutputs];
  TINY_LLM_UNROLL
  for (int m = 0; m < kRows; m++) {
    for (int o = 0; o < kFewOutputs; o++) sum[m][o] = 0.0f;
  }

  // Region multiply_words, a task of the course
  for (int j = lane; j < K / kPerWord; j += 32) {
    float w[kFewOutputs][kPerWord];
    TINY_LLM_UNROLL
    for (int o = 0; o < kFewOutputs; o++) {
      const int n = metal::min(first + o, N - 1);  // the last outputs may not exist
      const uint word = words[int64_t(n) * (K / kPerWord) + j];
      const float scale = float(scales[group_of(args, n, j / kBits)]);
      const float bias = float(biases[group_of(args, n, j / kBits)]);
      for (int i = 0; i < kPerWord; i++) w[o][i] = weight<kBits>(word, i, scale, bias);
    }
    TINY_LLM_UNROLL
    for (int m = 0; m < kRows; m++) {
      if (m < M) {  // the same for all lanes
        device const T* x = rows + int64_t(m) * K + j * kPerWord;
        for (int i = 0; i < kPerWord; i++) {
          for (int o = 0; o < kFewOutputs; o++) sum[m][o] += w[o][i] * float(x[i]);
        }
      }
    }
  }
  // End of region multiply_words

  TINY_LLM_UNROLL
  for (int m = 0; m < kRows; m++) {
    for (int o = 0; o < kFewOutputs; o++) {
      const float total = metal::simd_sum(sum[m][o]);
      if (lane == 0 && m < M && first + o < N) product[int64_t(m) * N + first + o] = T(total);
    }
  }
}

}  // namespace tiny_llm_ext
