// Packed weights times many rows, on matrix units: each weight is unpacked once for 32 rows.
//
// A threadgroup of 4 SIMD groups computes a tile of 32 rows and 64 outputs, chunk after chunk of K. Each
// chunk is loaded into threadgroup memory, the weights as float32; each SIMD group multiplies 16 of the rows
// with 32 of the outputs and accumulates in fragments.
#pragma once

#include "metal/kernels/fragment.h"
#include "metal/quantized/weights.h"

namespace tiny_llm_ext {

// The row stride of a tile: 16 bytes more than a chunk, so that the elements of a column are in different
// banks.
template <typename T>
constexpr int chunk_stride() {
  return kChunk + 16 / int(sizeof(T));
}

// Loads a chunk of the rows from `first` on. Rows beyond the end are 0.
template <typename T, typename Tile>
inline void load_rows(Tile tile, device const T* rows, constant QuantizedArguments& args, int first,
                      int chunk, int thread_index) {
  for (int i = thread_index; i < kTileRows * kChunk; i += 32 * kTileSimdGroups) {
    const int row = i / kChunk, k = i % kChunk;
    const bool real = first + row < args.M;
    tile[row * chunk_stride<T>() + k] =
        real ? rows[int64_t(first + row) * args.K + chunk * kChunk + k] : T(0.0f);
  }
}

// Unpacks a chunk of the weights of the outputs from `first` on; a thread unpacks whole words. Outputs beyond
// the end get the weights of the last one, and are never stored.
template <typename T, int kBits, typename Tile>
inline void unpack_weights(Tile tile, device const uint* words, device const T* scales,
                           device const T* biases, constant QuantizedArguments& args, int first, int chunk,
                           int thread_index) {
  constexpr int kPerWord = 32 / kBits;
  for (int i = thread_index; i < kTileOutputs * kBits; i += 32 * kTileSimdGroups) {
    const int output = i / kBits, j = i % kBits;
    const int n = metal::min(first + output, args.N - 1);
    const float scale = float(scales[group_of(args, n, chunk)]);
    const float bias = float(biases[group_of(args, n, chunk)]);
    const uint packed = words[(int64_t(n) * (args.K / kChunk) + chunk) * kBits + j];
    const int at = output * chunk_stride<float>() + j * kPerWord;
    for (int k = 0; k < kPerWord; k++) tile[at + k] = weight<kBits>(packed, k, scale, bias);
  }
}

// `Rows` and `Weights` point into threadgroup memory.
template <typename T, int kBits, typename Rows, typename Weights>
inline void many_rows(device const T* rows, device const uint* words, device const T* scales,
                      device const T* biases, device T* product, constant QuantizedArguments& args,
                      Rows row_tile, Weights weight_tile, uint3 group, uint simd_group, uint simd_lane) {
  constexpr int kDown = 2, kAcross = 4;  // fragments of a SIMD group along rows and outputs
  const metal::mem_flags of_threadgroup = metal::mem_flags::mem_threadgroup;
  const int thread_index = int(simd_group * 32 + simd_lane);
  const int r = fragment_row(int(simd_lane)), c = fragment_column(int(simd_lane));
  const int first_row = int(group.y) * kTileRows, first_output = int(group.x) * kTileOutputs;
  const int down = int(simd_group) / 2 * 8 * kDown, across = int(simd_group) % 2 * 8 * kAcross;
  const bool has_rows = first_row + down < args.M;

  Fragment sum[kDown][kAcross];
  TINY_LLM_UNROLL
  for (int d = 0; d < kDown; d++) {
    for (int a = 0; a < kAcross; a++) set_fragment(sum[d][a], 0.0f, 0.0f);
  }

  for (int chunk = 0; chunk < args.K / kChunk; chunk++) {
    metal::threadgroup_barrier(of_threadgroup);  // the chunk before has been read
    load_rows(row_tile, rows, args, first_row, chunk, thread_index);
    unpack_weights<T, kBits>(weight_tile, words, scales, biases, args, first_output, chunk, thread_index);
    metal::threadgroup_barrier(of_threadgroup);
    if (!has_rows) continue;
    for (int k = 0; k < kChunk; k += 8) {
      Fragment x[kDown], w[kAcross];
      TINY_LLM_UNROLL
      for (int d = 0; d < kDown; d++) {
        const int at = (down + d * 8 + r) * chunk_stride<T>() + k + c;
        set_fragment(x[d], float(row_tile[at]), float(row_tile[at + 1]));
      }
      TINY_LLM_UNROLL
      for (int a = 0; a < kAcross; a++) {  // transposed: its columns are outputs
        const int at = (across + a * 8 + c) * chunk_stride<float>() + k + r;
        set_fragment(w[a], weight_tile[at], weight_tile[at + chunk_stride<float>()]);
      }
      TINY_LLM_UNROLL
      for (int d = 0; d < kDown; d++) {
        for (int a = 0; a < kAcross; a++) {
          metal::simdgroup_multiply_accumulate(sum[d][a], x[d], w[a], sum[d][a]);
        }
      }
    }
  }

  TINY_LLM_UNROLL
  for (int d = 0; d < kDown; d++) {
    const int m = first_row + down + d * 8 + r;
    for (int a = 0; a < kAcross; a++) {
      for (int i = 0; i < 2; i++) {
        const int n = first_output + across + a * 8 + c + i;
        if (m < args.M && n < args.N) {
          product[int64_t(m) * args.N + n] = T(sum[d][a].thread_elements()[i]);
        }
      }
    }
  }
}

}  // namespace tiny_llm_ext
