// What a fast kernel reads, and where in it the work of a threadgroup lies.
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

// A query head of a batch entry.
struct Head {
  int batch, head, key_head;
};

inline Head head_of(int n, constant FastAttentionArguments& args) {
  const int head = n % args.heads;
  return {n / args.heads, head, head / args.group};
}

// The head's first row.
inline int64_t at_head(constant HeadStrides& strides, int batch, int head) {
  return batch * strides.batch + head * strides.head;
}

// A sink is a score without a value: it joins the sum of the weights alone.
template <typename T>
inline float sink_of(thread const Tensors<T>& in, thread const Head& head,
                     constant FastAttentionArguments& args) {
  return in.sinks[head.batch * args.sinks_batch_stride + head.head * args.sinks_head_stride];
}

// The elements of a row that there are; those behind them, up to the head size of the kernel, count as 0.
template <int kHeadSize>
inline int real_columns(constant FastAttentionArguments& args) {
  return has_padded_head ? args.E : kHeadSize;
}

}  // namespace tiny_llm_ext
