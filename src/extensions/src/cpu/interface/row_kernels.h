// The kernels of row operations, on dense rows of one element type: they compute in float32 and round once.
// Part of kernels.h.
#pragma once

#include <stdint.h>

#include "core/element.h"

namespace tiny_llm_ext::cpu {

// y = x / sqrt(mean(x^2) + eps) * weight for one row.
struct NormTask {
  const void* x;
  void* y;
  const void* weight;
  Element weight_element;
  float eps;
  int64_t width;
};

// One token of a rotary embedding: every pair (real, imaginary) of every head becomes
// (real cos - imaginary sin, imaginary cos + real sin); the inverse rotation has -sin. Pair i is
// (2i, 2i + 1) if traditional, else (i, i + half).
struct RopeTask {
  const void* x;
  int64_t x_head_stride;
  void* y;
  int64_t y_head_stride;
  const float *cos, *sin;  // one per pair
  int64_t heads, half;
  bool traditional, inverse;
};

// One row of quantized weights: `num_groups` quantization groups of `group_size` quants q of `bits` bits, the
// lowest bits of a word first. A weight is q * scale + bias; scales, biases and weights have the element
// type.
struct UnpackTask {
  const uint32_t* words;
  const void *scales, *biases;
  void* out;
  int64_t num_groups;
  int32_t group_size, bits;
};

// A search for the elements of a row that are not <= `threshold`, from element `next` on, until `capacity`
// are found. Their keys are appended to `sort_keys`. A larger element has a larger key; of equal elements
// that with the smaller index, which is the inverse of the key's lower half. NaN has the smallest keys, with
// an upper half of 0. A threshold of NaN finds every element.
struct FindAboveTask {
  const void* row;
  int64_t next, count;
  float threshold;
  uint64_t* sort_keys;
  int64_t found, capacity;
};

// The kernels of one element type. A result may overwrite one of the rows that are read.
struct RowKernels {
  void (*silu_multiply)(const void* gate, const void* up, void* out, int64_t count);  // silu(gate) * up
  void (*add)(const void* a, const void* b, void* out, int64_t count);
  void (*rms_norm)(const NormTask& task);
  void (*rope)(const RopeTask& task);
  void (*unpack)(const UnpackTask& task);
  // The index of the first NaN, else of the first of the largest elements.
  int64_t (*argmax)(const void* row, int64_t count);
  void (*find_above)(FindAboveTask& task);
  float (*logsumexp)(const void* row, int64_t count);
  // The largest element, -inf if all are NaN.
  float (*max)(const void* row, int64_t count);
  // Writes exp(x - reference) of every element and returns the sum.
  float (*exp_minus)(const void* row, int64_t count, float reference, float* out);
};

}  // namespace tiny_llm_ext::cpu
