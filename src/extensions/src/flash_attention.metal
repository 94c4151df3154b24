// FlashAttention in float32 for head sizes up to 128, on Metal, written to be read.
//
// A threadgroup computes 32 query rows of one head with 32 SIMD groups of 32 lanes; each SIMD group owns a
// row. It iterates over the keys in tiles of 32. For the scores, each lane computes one key; for the output,
// each lane computes some columns. In between is the online softmax: every lane has the running maximum m and
// the running sum l of the row.
//
// Compile it without fast math: hidden scores are -INFINITY.
#include <metal_stdlib>

#include "metal/kernels/arguments.h"
#include "metal/kernels/mask.h"

using namespace metal;
using namespace tiny_llm_ext;

// Grid: (N, ceil(L / 32), 1) threadgroups of 32 x 32 threads.
kernel void flash_attention_f32_e128(
    device const float* query [[buffer(kQuerySlot)]], device const float* key [[buffer(kKeySlot)]],
    device const float* value [[buffer(kValueSlot)]], device const uchar* mask [[buffer(kMaskSlot)]],
    device float* output [[buffer(kOutputSlot)]], device float* lse [[buffer(kLseSlot)]],
    constant AttentionArguments& args [[buffer(kArgumentsSlot)]], uint3 tile [[threadgroup_position_in_grid]],
    uint simd_group [[simdgroup_index_in_threadgroup]], uint simd_lane [[thread_index_in_simdgroup]]) {
  constexpr int kLanes = 32;

  // Two arrays of 32 x 128 floats: all of the 32 KiB that a threadgroup has.
  threadgroup float q[32][128];
  threadgroup float o[32][128];

  const int n = int(tile.x);
  const int r = int(simd_group);
  const int row = int(tile.y) * 32 + r;
  const int lane = int(simd_lane);
  const int L = args.L, S = args.S, E = args.E;

  const int64_t at_row = (int64_t(n) * L + row) * E;
  const int64_t at_keys = int64_t(n / args.group) * S * E;
  const int64_t at_mask = (n / args.heads) * args.mask_batch_stride +
                          (n % args.heads) * args.mask_head_stride + row * args.mask_row_stride;

  if (row < L) {
    for (int e = lane; e < E; e += kLanes) {
      q[r][e] = query[at_row + e];
      o[r][e] = 0.0f;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (row >= L) return;  // the last tile of rows may be incomplete

  // Region attend_row, a task of the course
  // The row sees the keys before `end`. Causal: the last row sees the last key, also where L and S differ.
  // Tiles from `end` on are not visited. With `end` below 1 the row sees no key.
  const int end = args.causal ? row + (S - L) + 1 : S;

  float m = -INFINITY;
  float l = 0.0f;
  for (int begin = 0; begin < end; begin += kLanes) {
    // Scores: this lane's key against the whole query.
    const int j = begin + lane;
    float s = -INFINITY;
    if (j < end) {
      float dot = 0.0f;
      for (int e = 0; e < E; e++) dot += q[r][e] * key[at_keys + int64_t(j) * E + e];
      s = args.scale * dot;
      if (args.mask_kind != kNoMask) {
        s = masked(s, mask_bias(mask, at_mask + j * args.mask_key_stride, args.mask_kind));
      }
    }

    // Online softmax. While no key was visible, the maximum is -inf, and -inf - -inf would be NaN.
    const float m_new = max(m, simd_max(s));
    const float base = m_new == -INFINITY ? 0.0f : m_new;
    const float alpha = exp(m - base);
    const float p = exp(s - base);
    l = alpha * l + simd_sum(p);
    m = m_new;

    // Output: this lane's columns, over the keys of all lanes.
    for (int e = lane; e < E; e += kLanes) o[r][e] *= alpha;
    const int keys = min(kLanes, end - begin);
    for (int k = 0; k < keys; k++) {
      if (simd_broadcast(s, ushort(k)) == -INFINITY) continue;  // hidden: 0 times a value of NaN would be NaN
      const float weight = simd_broadcast(p, ushort(k));
      for (int e = lane; e < E; e += kLanes) o[r][e] += weight * value[at_keys + int64_t(begin + k) * E + e];
    }
  }

  // One division a row. A row without keys gives zeros, and -inf + log(0) = -inf.
  const float inverse = 1.0f / l;
  for (int e = lane; e < E; e += kLanes) output[at_row + e] = l == 0.0f ? 0.0f : o[r][e] * inverse;
  if (lane == 0) lse[int64_t(n) * L + row] = m + log(l);
  // End of region attend_row
}
