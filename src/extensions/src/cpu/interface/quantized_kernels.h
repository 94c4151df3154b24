// The kernels of products with quantized weights; part of kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tiny_llm_ext::cpu {

// One task of a quantized product: some rows of y (M, N) = x (M, K) w^T at some outputs n.
//
// Row n of w holds K quants q of `bits` bits in 32-bit words, the lowest bits first; a weight is
// q * scale + bias, with one scale and bias per quantization group. x, scales, biases and y have one element
// type. Strides count elements; all last axes have stride 1.
struct QuantizedTask {
  const void* x;
  int64_t x_row_stride;
  const uint32_t* w;
  int64_t w_row_stride;
  const void* scales;
  int64_t scales_row_stride;
  const void* biases;
  int64_t biases_row_stride;
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs;  // at least 1 of each
  int64_t num_groups;     // quantization groups of a row: K / group_size
  int32_t group_size;     // 32, 64 or 128 quants
  int32_t bits;           // 4 or 8
  bool streamed;          // weights are read once: each task has all rows of x, at most max_streamed_rows
};

// Quantized products of one element type. First x is packed, in panels of `pack_rows` rows or, if streamed,
// in one panel; the packed panels follow each other. Then each task runs on its packed panels. If panels have
// no bytes, tasks read x itself. The epilogue of GEMV and skinny paths also reads x: outliers are multiplied
// in float32.
//
// Threads share the packing of a panel: first of each row what depends on all of it, if anything does, then
// parts of K, each with all rows. Neither order nor thread matters.
struct QuantizedKernels {
  size_t (*packed_bytes)(const QuantizedTask& task);
  bool (*prepares_rows)(const QuantizedTask& task);
  void (*prepare_row)(const QuantizedTask& task, void* packed, int64_t m);
  int64_t (*pack_parts)(const QuantizedTask& task);
  void (*pack)(const QuantizedTask& task, void* packed, int64_t begin, int64_t end);
  size_t (*scratch_bytes)(const QuantizedTask& task);
  void (*run)(const QuantizedTask& task, const void* packed, void* scratch);
  int max_streamed_rows;
  // If not streamed: tasks have at most task_rows rows, a multiple of pack_rows, and task_outputs outputs.
  int64_t pack_rows, task_rows, task_outputs;
};

}  // namespace tiny_llm_ext::cpu
