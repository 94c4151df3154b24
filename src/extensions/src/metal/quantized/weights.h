// Unpacks weights.
#pragma once

#include <metal_stdlib>

#include "metal/quantized/arguments.h"

namespace tiny_llm_ext {

// The index of the scale and the bias of a chunk of output `n`.
inline int64_t group_of(constant QuantizedArguments& args, int n, int chunk) {
  return int64_t(n) * (args.K / kChunk >> args.group_shift) + (chunk >> args.group_shift);
}

// Weight `i` of a word, which holds 32 / kBits of them.
template <int kBits>
inline float weight(uint word, int i, float scale, float bias) {
  return float(word >> (i * kBits) & ((1u << kBits) - 1)) * scale + bias;
}

}  // namespace tiny_llm_ext
