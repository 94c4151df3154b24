// A mask entry and a score. Host and kernels know the kinds of masks from arguments.h.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/arguments.h"

namespace tiny_llm_ext {

// The mask's entry for one key, as a number to add; -inf hides the key.
inline float mask_bias(device const uchar* mask, int64_t at, int32_t kind) {
  switch (kind) {
    case kBooleanMask:
      return mask[at] ? 0.0f : -INFINITY;
    case kFloatMask:
      return ((device const float*)mask)[at];
    case kHalfMask:
      return float(((device const half*)mask)[at]);
    case kBfloatMask:  // the upper half of a float32; the oldest GPUs have no type for it
      return as_type<float>(uint(((device const ushort*)mask)[at]) << 16);
    default:
      return 0.0f;
  }
}

// A hidden score is chosen, not added up: a NaN in the key it came from stays hidden, too.
inline float masked(float score, float bias) { return bias == -INFINITY ? -INFINITY : score + bias; }

}  // namespace tiny_llm_ext
