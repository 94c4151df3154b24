// The product of rows with packed weights, on Metal: kernels for one row, for a few and for many.
//
// Every kernel unpacks weights to float32, accumulates in float32 and rounds once.
#include <metal_stdlib>

#include "metal/quantized/few_rows.h"
#include "metal/quantized/many_rows.h"

using namespace metal;
using namespace tiny_llm_ext;

// Grid: (ceil(N / 16), 1, 1) threadgroups of 128 threads.
#define TINY_LLM_FEW_ROWS(NAME, T, BITS, ROWS)                                                           \
  kernel void quantized_##NAME##_b##BITS(                                                                \
      device const T* rows [[buffer(kRowsSlot)]], device const uint* words [[buffer(kWordsSlot)]],       \
      device const T* scales [[buffer(kScalesSlot)]], device const T* biases [[buffer(kBiasesSlot)]],    \
      device T* product [[buffer(kProductSlot)]],                                                        \
      constant QuantizedArguments& args [[buffer(kQuantizedArgumentsSlot)]],                             \
      uint3 group [[threadgroup_position_in_grid]], uint simd_group [[simdgroup_index_in_threadgroup]],  \
      uint simd_lane [[thread_index_in_simdgroup]]) {                                                    \
    few_rows<T, BITS, ROWS>(rows, words, scales, biases, product, args, group.x, simd_group, simd_lane); \
  }

// Grid: (ceil(N / 64), ceil(M / 32), 1) threadgroups of 128 threads.
#define TINY_LLM_MANY_ROWS(NAME, T, BITS)                                                                    \
  kernel void quantized_many_rows_##NAME##_b##BITS(                                                          \
      device const T* rows [[buffer(kRowsSlot)]], device const uint* words [[buffer(kWordsSlot)]],           \
      device const T* scales [[buffer(kScalesSlot)]], device const T* biases [[buffer(kBiasesSlot)]],        \
      device T* product [[buffer(kProductSlot)]],                                                            \
      constant QuantizedArguments& args [[buffer(kQuantizedArgumentsSlot)]],                                 \
      uint3 group [[threadgroup_position_in_grid]], uint simd_group [[simdgroup_index_in_threadgroup]],      \
      uint simd_lane [[thread_index_in_simdgroup]]) {                                                        \
    threadgroup T row_tile[kTileRows * chunk_stride<T>()];                                                   \
    threadgroup float weight_tile[kTileOutputs * chunk_stride<float>()];                                     \
    many_rows<T, BITS>(rows, words, scales, biases, product, args, row_tile, weight_tile, group, simd_group, \
                       simd_lane);                                                                           \
  }

#define TINY_LLM_QUANTIZED(BITS)                           \
  TINY_LLM_FEW_ROWS(one_row_f32, float, BITS, 1)           \
  TINY_LLM_FEW_ROWS(one_row_f16, half, BITS, 1)            \
  TINY_LLM_FEW_ROWS(one_row_bf16, bfloat, BITS, 1)         \
  TINY_LLM_FEW_ROWS(few_rows_f32, float, BITS, kFewRows)   \
  TINY_LLM_FEW_ROWS(few_rows_f16, half, BITS, kFewRows)    \
  TINY_LLM_FEW_ROWS(few_rows_bf16, bfloat, BITS, kFewRows) \
  TINY_LLM_MANY_ROWS(f32, float, BITS)                     \
  TINY_LLM_MANY_ROWS(f16, half, BITS)                      \
  TINY_LLM_MANY_ROWS(bf16, bfloat, BITS)

TINY_LLM_QUANTIZED(4)
TINY_LLM_QUANTIZED(8)
