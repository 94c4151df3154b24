// The arguments of the quantized product's kernels: buffer slots and one plain struct.
//
// Host, kernels and tests include this file, so it keeps to the part of C++14 that Metal has.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

namespace tiny_llm_ext {

enum QuantizedSlot {
  kRowsSlot,
  kWordsSlot,
  kScalesSlot,
  kBiasesSlot,
  kProductSlot,
  kQuantizedArgumentsSlot,
};

// Rows (M, K) times the transpose of packed weights (N, K): words (N, K * bits / 32), the first number of a
// word in its lowest bits, scales and biases (N, K / group). All dense; K is a multiple of the group.
struct QuantizedArguments {
  int32_t M, N, K;
  int32_t group_shift;  // a quantization group has 32 << group_shift weights
};

static_assert(sizeof(QuantizedArguments) == 16, "the host and the GPU disagree about the arguments");

// How the kernels divide the work; the grid depends on it.
enum {
  kChunk = 32,      // weights: a quantization group is 1, 2 or 4 chunks
  kFewRows = 8,     // up to here, all rows are kept in registers
  kFewOutputs = 4,  // outputs of a SIMD group in that kernel
  kFewSimdGroups = 4,
  kTileRows = 32,  // tile of a threadgroup in the kernel for many rows
  kTileOutputs = 64,
  kTileSimdGroups = 4,
};

}  // namespace tiny_llm_ext
