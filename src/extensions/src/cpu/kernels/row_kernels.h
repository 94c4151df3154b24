// The small operations between the products: each works on dense rows of one element type, calculates in
// float32 and rounds once.
//
// Like kernels.h, which includes it, this is shared with the kernel files: neither STL nor MLX.
#pragma once

#include <stdint.h>

#include "core/element.h"

namespace tiny_llm_ext::cpu {

// y = v / sqrt(mean(v^2) + eps) * weight for one row v: x, or if there is a residual sum = x + residual,
// rounded.
struct NormTask {
  const void* x;
  void* y;
  const void* weight;
  Element weight_element;
  float eps;
  int64_t width;
};

// One token of a rotary embedding: every head's pairs (real, imaginary) become (real cos - imaginary sin,
// imaginary cos + real sin), or what undoes that. Pair i is (2i, 2i + 1) if traditional, else (i, i + half).
struct RopeTask {
  const void* x;
  int64_t x_head_stride;
  void* y;
  int64_t y_head_stride;
  const float *cos, *sin;  // one for each pair
  int64_t heads, half;
  bool traditional, inverse;
};

// A row of quantized weights: each of `groups` groups of `group` numbers q of `bits` bits, the lowest bits of
// a word first, becomes q * scale + bias. The scales and biases are of the element type.
struct UnpackTask {
  const uint32_t* words;
  const void *scales, *biases;
  void* out;
  int64_t groups;
  int32_t group, bits;
};

// A search in a row for what is not at most `threshold`: from element `next` on, it appends the ranks of what
// it finds until there are `room`. Ranks order by falling numbers and then by rising index, which the lower
// half holds inverted; NaN comes last, with an upper half of 0. A threshold of NaN finds everything.
struct ScanTask {
  const void* row;
  int64_t next, count;
  float threshold;
  uint64_t* ranks;
  int64_t found, room;
};

// The kernels of one element type. Where several rows are read, the result may lie in the place of one of
// them.
struct RowKernels {
  void (*silu_multiply)(const void* gate, const void* up, void* out, int64_t count);  // silu(gate) * up
  void (*add)(const void* a, const void* b, void* out, int64_t count);
  void (*rms_norm)(const NormTask& task);
  void (*rope)(const RopeTask& task);
  void (*unpack)(const UnpackTask& task);
  // The index of the largest number, of equals the first one; that of the first NaN if there is one.
  int64_t (*argmax)(const void* row, int64_t count);
  void (*scan)(ScanTask& task);
  float (*logsumexp)(const void* row, int64_t count);
  // The largest number, -inf where there is none; e^(x - reference) of every number, and their sum.
  float (*largest)(const void* row, int64_t count);
  float (*powers)(const void* row, int64_t count, float reference, float* out);
};

}  // namespace tiny_llm_ext::cpu
