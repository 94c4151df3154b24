// What an instruction set offers for products with dense weights; part of kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tiny_llm_ext::cpu {

// One unit of a dense product: some rows of y (M, N) = x (M, K) w^T + bias at some outputs n.
//
// Everything has one element type. Strides count elements, the last axis of everything has stride 1.
struct LinearTask {
  const void* x;
  int64_t x_row_stride;
  const void* w;
  int64_t w_row_stride;
  const void* bias;  // one number an output, or null
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs, K;  // at least 1 row
};

// One way to multiply. First x is packed, `tile_rows` rows at a time or, if streamed, in one piece; the
// packed tiles lie behind each other. Then each task runs on the packed rows that are its own; it may read x
// again.
struct LinearForm {
  size_t (*packed_bytes)(const LinearTask& task);
  void (*pack)(const LinearTask& task, void* packed);
  size_t (*scratch_bytes)(const LinearTask& task);
  void (*run)(const LinearTask& task, const void* packed, void* scratch);
  bool streamed;                 // the weights pass by once: each task has all rows
  int tile_rows;                 // otherwise
  int task_tiles, task_outputs;  // most of one task
};

// The form for products of so many rows.
typedef const LinearForm& (*FormOfRows)(int64_t rows);

}  // namespace tiny_llm_ext::cpu
