// The arguments of the readable attention kernel: its buffer slots and one plain struct.
//
// Host, kernels and tests include this file, so it keeps to the part of C++14 that Metal has.
// fast_arguments.h has those of the fast kernels.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

namespace tiny_llm_ext {

enum AttentionSlot {
  kQuerySlot,
  kKeySlot,
  kValueSlot,
  kMaskSlot,  // without a mask, any buffer
  kOutputSlot,
  kLseSlot,
  kArgumentsSlot,
};

// The element type of the mask; same values as MaskKind.
enum AttentionMask { kNoMask, kBooleanMask, kFloatMask, kHalfMask, kBfloatMask };

// Query (N, L, E), key and value (N / group, S, E), all dense. N counts the heads of all batch entries: n is
// head n % heads of batch entry n / heads, and reads key/value head n / group. The mask keeps the caller's
// layout: strides are in elements, and 0 along broadcast axes.
struct AttentionArguments {
  int64_t mask_batch_stride, mask_head_stride, mask_row_stride, mask_key_stride;
  int32_t L, S, E;
  int32_t heads;
  int32_t group;  // query heads that share a key/value head
  float scale;
  int32_t causal;
  int32_t mask_kind;  // AttentionMask
};

static_assert(sizeof(AttentionArguments) == 64, "the host and the GPU disagree about the arguments");

}  // namespace tiny_llm_ext
