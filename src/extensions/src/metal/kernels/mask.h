// Reads mask entries and applies them to scores. arguments.h has the kinds of masks.
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
    case kBfloatMask:  // the upper half of a float32; the oldest GPUs have no bfloat type
      return as_type<float>(uint(((device const ushort*)mask)[at]) << 16);
    default:
      return 0.0f;
  }
}

// A hidden score is replaced, not added to, so a NaN in a hidden key has no effect.
inline float masked(float score, float bias) { return bias == -INFINITY ? -INFINITY : score + bias; }

}  // namespace tiny_llm_ext
