// The fast attention kernels, one for each type and head size.
#include <metal_stdlib>

#include "metal/kernels/decode.h"
#include "metal/kernels/merge.h"
#include "metal/kernels/prefill.h"

using namespace metal;
using namespace tiny_llm_ext;

// The inputs of the fast kernels except merge; a missing input is any buffer.
#define TINY_LLM_INPUTS(T)                                                                          \
  device const T *query [[buffer(kQuerySlot)]], device const T *key [[buffer(kKeySlot)]],           \
      device const T *value [[buffer(kValueSlot)]], device const uchar *mask [[buffer(kMaskSlot)]], \
      device const float *sinks [[buffer(kSinksSlot)]],                                             \
      device const int *q_lens [[buffer(kQueryLengthsSlot)]],                                       \
      device const int *kv_start [[buffer(kKeyStartsSlot)]],                                        \
      device const int *kv_lens [[buffer(kKeyLengthsSlot)]]

// Grid: (N, ceil(L / 32), 1) threadgroups of 128 threads.
#define TINY_LLM_PREFILL(NAME, T, E, KEYS)                                                                  \
  kernel void attention_prefill_##NAME##_e##E(                                                              \
      TINY_LLM_INPUTS(T), device T* output [[buffer(kOutputSlot)]], device float* lse [[buffer(kLseSlot)]], \
      constant FastAttentionArguments& args [[buffer(kArgumentsSlot)]],                                     \
      uint3 group [[threadgroup_position_in_grid]], uint simd_group [[simdgroup_index_in_threadgroup]],     \
      uint simd_lane [[thread_index_in_simdgroup]]) {                                                       \
    threadgroup T tile[KEYS * tile_stride<T, E>()];                                                         \
    threadgroup float others[4];                                                                            \
    const Tensors<T> in = {query, key, value, mask, sinks, q_lens, kv_start, kv_lens};                      \
    prefill<T, E, KEYS>(in, output, lse, args, tile, others, group, simd_group, simd_lane);                 \
  }

#define TINY_LLM_PREFILL_TYPES(E, KEYS) \
  TINY_LLM_PREFILL(f32, float, E, KEYS) \
  TINY_LLM_PREFILL(f16, half, E, KEYS)  \
  TINY_LLM_PREFILL(bf16, bfloat, E, KEYS)

// Fewer keys in a tile for large heads: scores and output share the registers.
TINY_LLM_PREFILL_TYPES(64, 32)
TINY_LLM_PREFILL_TYPES(80, 32)
TINY_LLM_PREFILL_TYPES(96, 32)
TINY_LLM_PREFILL_TYPES(128, 16)
TINY_LLM_PREFILL_TYPES(256, 16)

// Grid: (N, L, splits) threadgroups of 256 threads. The parts of several splits are float32.
#define TINY_LLM_DECODE(NAME, T, OUT, PART, E)                                                          \
  kernel void attention_##NAME##_e##E(TINY_LLM_INPUTS(T), device OUT* output [[buffer(kOutputSlot)]],   \
                                      device float* lse [[buffer(kLseSlot)]],                           \
                                      constant FastAttentionArguments& args [[buffer(kArgumentsSlot)]], \
                                      uint3 group [[threadgroup_position_in_grid]],                     \
                                      uint simd_group [[simdgroup_index_in_threadgroup]],               \
                                      uint simd_lane [[thread_index_in_simdgroup]]) {                   \
    threadgroup float o[kDecodeSimdGroups * E], m[kDecodeSimdGroups], l[kDecodeSimdGroups];             \
    const Tensors<T> in = {query, key, value, mask, sinks, q_lens, kv_start, kv_lens};                  \
    decode<T, OUT, PART, E>(in, output, lse, args, o, m, l, group, simd_group, simd_lane);              \
  }

#define TINY_LLM_DECODE_TYPES(E)                           \
  TINY_LLM_DECODE(decode_f32, float, float, false, E)      \
  TINY_LLM_DECODE(decode_f16, half, half, false, E)        \
  TINY_LLM_DECODE(decode_bf16, bfloat, bfloat, false, E)   \
  TINY_LLM_DECODE(decode_split_f32, float, float, true, E) \
  TINY_LLM_DECODE(decode_split_f16, half, float, true, E)  \
  TINY_LLM_DECODE(decode_split_bf16, bfloat, float, true, E)

TINY_LLM_DECODE_TYPES(64)
TINY_LLM_DECODE_TYPES(80)
TINY_LLM_DECODE_TYPES(96)
TINY_LLM_DECODE_TYPES(128)
TINY_LLM_DECODE_TYPES(256)

// Grid: (N, L, 1) threadgroups of 128 threads.
#define TINY_LLM_MERGE(NAME, T)                                                                             \
  kernel void attention_merge_##NAME(                                                                       \
      device const float* parts [[buffer(kPartsSlot)]], device const float* sums [[buffer(kPartSumsSlot)]], \
      device T* output [[buffer(kMergedSlot)]], device float* lse [[buffer(kMergedLseSlot)]],               \
      constant FastAttentionArguments& args [[buffer(kMergeArgumentsSlot)]],                                \
      uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]) {    \
    merge(parts, sums, output, lse, args, group, int(thread_index));                                        \
  }

TINY_LLM_MERGE(f32, float)
TINY_LLM_MERGE(f16, half)
TINY_LLM_MERGE(bf16, bfloat)
