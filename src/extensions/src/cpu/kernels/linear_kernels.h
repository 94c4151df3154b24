// The kernels of products with dense weights; part of kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tiny_llm_ext::cpu {

// One task of a dense product: some rows of y (M, N) = x (M, K) w^T + bias at some outputs n.
//
// All arrays have one element type. Strides count elements; all last axes have stride 1.
struct LinearTask {
  const void* x;
  int64_t x_row_stride;
  const void* w;
  int64_t w_row_stride;
  const void* bias;  // one number per output, or null
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs, K;  // at least 1 row
};

// One way to multiply. First x is packed, `tile_rows` rows at a time or, if streamed, in one piece; the
// packed tiles follow each other. Then each task runs on its packed rows; it may also read x.
struct LinearKernel {
  size_t (*packed_bytes)(const LinearTask& task);
  void (*pack)(const LinearTask& task, void* packed);
  size_t (*scratch_bytes)(const LinearTask& task);
  void (*run)(const LinearTask& task, const void* packed, void* scratch);
  bool streamed;                 // weights are read once: each task has all rows
  int tile_rows;                 // if not streamed
  int task_tiles, task_outputs;  // of one task, at most
};

// The form for products of `rows` rows.
typedef const LinearKernel& (*SelectLinearKernel)(int64_t rows);

}  // namespace tiny_llm_ext::cpu
