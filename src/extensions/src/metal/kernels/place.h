// The place of a threadgroup's data: a query head of a batch entry, and the keys that it reads.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/visibility.h"

namespace tiny_llm_ext {

template <typename T>
struct Place {
  int n_q, n_k;           // rows and keys of the sequence
  device const T* query;  // row 0
  device const T* key;    // logical key 0
  device const T* value;
  int64_t at_mask;  // of row 0 and logical key 0
  float sink;       // a score without a value, which counts only in the sum of the weights
};

inline int64_t at_head(constant HeadStrides& strides, int batch, int head) {
  return batch * strides.batch + head * strides.head;
}

template <typename T>
inline Place<T> place_of(thread const Tensors<T>& in, int n, constant FastAttentionArguments& args) {
  const int batch = n / args.heads, head = n % args.heads, key_head = head / args.group;
  const Sequence sequence = sequence_of(in, batch, args);
  const int64_t start = sequence.start;
  return {
      sequence.n_q,
      sequence.n_k,
      in.query + at_head(args.query, batch, head),
      in.key + at_head(args.key, batch, key_head) + start * args.key.row,
      in.value + at_head(args.value, batch, key_head) + start * args.value.row,
      batch * args.mask.batch + head * args.mask.head + start * args.mask.key,
      has_sinks ? in.sinks[batch * args.sinks_batch_stride + head * args.sinks_head_stride] : -INFINITY,
  };
}

}  // namespace tiny_llm_ext
