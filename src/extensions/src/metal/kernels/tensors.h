// The inputs of a fast kernel.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/features.h"

namespace tiny_llm_ext {

template <typename T>
struct Tensors {
  device const T* query;
  device const T* key;
  device const T* value;
  device const uchar* mask;
  device const float* sinks;
  device const int* q_lens;
  device const int* kv_start;
  device const int* kv_lens;
};

// The elements that a row has; those after them, up to the kernel's head size, count as 0.
template <int kHeadSize>
inline int real_columns(constant FastAttentionArguments& args) {
  return has_padded_head ? args.E : kHeadSize;
}

}  // namespace tiny_llm_ext
