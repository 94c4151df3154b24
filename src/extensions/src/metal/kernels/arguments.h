// What the host tells the readable attention kernel: the buffer slots and one plain struct.
//
// The host, the kernels and the tests include this one file, in the part of C++14 that Metal has. What the
// fast kernels are told beyond it stands in fast_arguments.h.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

namespace tiny_llm_ext {

enum AttentionSlot {
  kQuerySlot,
  kKeySlot,
  kValueSlot,
  kMaskSlot,  // any buffer when there is no mask
  kOutputSlot,
  kLseSlot,
  kArgumentsSlot,
};

// What a mask holds; the numbers are those of MaskKind.
enum AttentionMask { kNoMask, kBooleanMask, kFloatMask, kHalfMask, kBfloatMask };

// Query (N, L, E), key and value (N / group, S, E), all dense. N counts the heads of all batch entries: row n
// is head n % heads of batch entry n / heads, and reads key head n / group. The mask stays as the caller laid
// it out: strides count elements and are 0 where it is broadcast.
struct AttentionArguments {
  int64_t mask_batch_stride, mask_head_stride, mask_row_stride, mask_key_stride;
  int32_t L, S, E;
  int32_t heads;
  int32_t group;  // query heads that share a key head
  float scale;
  int32_t causal;
  int32_t mask_kind;  // AttentionMask
};

static_assert(sizeof(AttentionArguments) == 64, "the host and the GPU disagree about the arguments");

}  // namespace tiny_llm_ext
