// The arguments of the fast attention kernels: more slots, one plain struct, and the features that a pipeline
// is compiled for.
#pragma once

#include "metal/kernels/arguments.h"

namespace tiny_llm_ext {

// These follow AttentionSlot. A missing input is any buffer.
enum FastAttentionSlot {
  kSinksSlot = 7,
  kQueryLengthsSlot,
  kKeyStartsSlot,
  kKeyLengthsSlot,
};

// Slots of the merge kernel, which combines the parts of a row.
enum MergeSlot { kPartsSlot, kPartSumsSlot, kMergedSlot, kMergedLseSlot, kMergeArgumentsSlot };

// Function constants, all int, all required. A pipeline compiled without a feature does not pay for it.
enum AttentionFeature {
  kMaskFeature,        // an AttentionMask
  kWindowFeature,      // 0 or 1: left or right is limited
  kSoftcapFeature,     // 0 or 1
  kSinksFeature,       // 0 or 1
  kLengthsFeature,     // 0 or 1: some of q_lens, kv_start and kv_lens are given
  kPaddedHeadFeature,  // 0 or 1: E is less than the head size that the kernel is compiled for
  kAttentionFeatures,
};

// Strides count elements. The last axis is dense: its stride is 1.
struct HeadStrides {
  int64_t batch, head, row;
};

// A stride is 0 along an axis that the mask is broadcast over.
struct MaskStrides {
  int64_t batch, head, row, key;
};

// One length for each batch entry, int32 or int64; only the lower 32 bits are read, and the stride counts
// 32-bit words.
struct LengthsInput {
  int32_t given;  // 0 or 1
  int32_t stride;
};

// No window. L and S are smaller, so a position plus this fits an int32.
enum { kUnboundedWindow = 1 << 30 };

// Query (B, heads, L, E), key and value (B, heads / group, S, E), by strides. The output (B, heads, L, E) and
// its log-sum-exp (B, heads, L) are dense.
struct FastAttentionArguments {
  HeadStrides query, key, value;
  MaskStrides mask;
  int64_t sinks_batch_stride, sinks_head_stride;  // float32
  int32_t N;                                      // B * heads
  int32_t heads;
  int32_t group;  // query heads that share a key/value head
  int32_t L, S, E;
  int32_t left, right;  // keys that a row sees before and after its position, 0 to kUnboundedWindow
  float scale;
  float softcap;           // 0: none
  int32_t keys_per_split;  // at least 1; S or more for a single split
  LengthsInput q_lens, kv_start, kv_lens;
};

static_assert(sizeof(FastAttentionArguments) == 192, "the host and the GPU disagree about the arguments");

}  // namespace tiny_llm_ext
