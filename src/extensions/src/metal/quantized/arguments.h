// What the host tells a kernel of the quantized product: the buffer slots and one plain struct.
//
// The host, the kernels and the tests include this one file, in the part of C++14 that Metal has.
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
  int32_t group_shift;  // a group is 32 << group_shift numbers
};

static_assert(sizeof(QuantizedArguments) == 16, "the host and the GPU disagree about the arguments");

// How the kernels share out the work, which the grid must fit.
enum {
  kChunk = 32,      // numbers: a group is 1, 2 or 4 chunks
  kFewRows = 8,     // rows up to here go to the kernel that keeps them all in registers
  kFewOutputs = 4,  // of each SIMD group there
  kFewSimdGroups = 4,
  kTileRows = 32,  // rows and outputs of a threadgroup for many rows
  kTileOutputs = 64,
  kTileSimdGroups = 4,
};

}  // namespace tiny_llm_ext
