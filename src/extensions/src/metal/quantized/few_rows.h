// Packed weights times up to kRows rows. A token at a time, reading the weights is nearly all of the work:
// they are read once, and unpacked once for all rows.
//
// A SIMD group computes kFewOutputs neighbouring outputs; its lanes share out K. A lane takes every 32nd
// chunk: kBits neighbouring words of each output, which share a scale and a bias. Sums stay in registers.
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

  for (int chunk = lane; chunk < K / kChunk; chunk += 32) {
    device const uint* word[kFewOutputs];
    float scale[kFewOutputs], bias[kFewOutputs];
    TINY_LLM_UNROLL
    for (int o = 0; o < kFewOutputs; o++) {
      const int n = metal::min(first + o, N - 1);  // the last outputs may not exist
      word[o] = words + (int64_t(n) * (K / kChunk) + chunk) * kBits;
      scale[o] = float(scales[group_of(args, n, chunk)]);
      bias[o] = float(biases[group_of(args, n, chunk)]);
    }
    for (int j = 0; j < kBits; j++) {
      float w[kFewOutputs][kPerWord];
      TINY_LLM_UNROLL
      for (int o = 0; o < kFewOutputs; o++) {
        const uint packed = word[o][j];
        for (int i = 0; i < kPerWord; i++) w[o][i] = weight<kBits>(packed, i, scale[o], bias[o]);
      }
      TINY_LLM_UNROLL
      for (int m = 0; m < kRows; m++) {
        if (m < M) {  // the same for all lanes
          device const T* x = rows + int64_t(m) * K + chunk * kChunk + j * kPerWord;
          for (int i = 0; i < kPerWord; i++) {
            for (int o = 0; o < kFewOutputs; o++) sum[m][o] += w[o][i] * float(x[i]);
          }
        }
      }
    }
  }

  TINY_LLM_UNROLL
  for (int m = 0; m < kRows; m++) {
    for (int o = 0; o < kFewOutputs; o++) {
      const float total = metal::simd_sum(sum[m][o]);
      if (lane == 0 && m < M && first + o < N) product[int64_t(m) * N + first + o] = T(total);
    }
  }
}

}  // namespace tiny_llm_ext
