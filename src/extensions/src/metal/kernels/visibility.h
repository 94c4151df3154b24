// The keys that a row sees by the lengths of its sequence and the window, before any mask.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/tensors.h"

namespace tiny_llm_ext {

// The valid part of a batch entry: its first n_q rows, and n_k keys from `start` on. Logical key t is key
// start + t of the tensor.
struct Sequence {
  int n_q, start, n_k;
};

// The host cannot check lengths that are still being computed; they are clamped to the tensors.
inline int length_of(device const int* lengths, constant LengthsInput& input, int batch, int absent,
                     int most) {
  if (!input.given) return absent;
  return metal::min(metal::max(lengths[int64_t(batch) * input.stride], 0), most);
}

template <typename T>
inline Sequence sequence_of(thread const Tensors<T>& in, int batch, constant FastAttentionArguments& args) {
  if (!has_lengths) return {args.L, 0, args.S};
  const int n_q = length_of(in.q_lens, args.q_lens, batch, args.L, args.L);
  const int start = length_of(in.kv_start, args.kv_start, batch, 0, args.S);
  const int rest = args.S - start;
  return {n_q, start, length_of(in.kv_lens, args.kv_lens, batch, rest, rest)};
}

// A range of logical keys, empty where end <= begin.
struct KeyRange {
  int begin, end;
};

// The keys that some of these rows see. The last valid row is aligned with the last key.
inline KeyRange seen_keys(int first_row, int last_row, int n_q, int n_k,
                          constant FastAttentionArguments& args) {
  last_row = metal::min(last_row, n_q - 1);
  const int end = last_row < first_row ? 0 : n_k;
  if (!has_window) return {0, end};
  const int shift = n_k - n_q;
  return {metal::max(0, first_row + shift - args.left), metal::min(end, last_row + shift + args.right + 1)};
}

}  // namespace tiny_llm_ext
