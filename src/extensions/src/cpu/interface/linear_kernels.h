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
  const void* bias;  // one element per output, or null
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs, K;  // at least 1 row
};

// First x is packed, in panels of `pack_rows` rows or, if streamed, in one panel; the packed panels follow
// each other. Then each task runs on its packed panels. Split bf16 also reads x, to compute results that are
// not finite again.
struct LinearKernel {
  size_t (*packed_bytes)(const LinearTask& task);
  void (*pack)(const LinearTask& task, void* packed);
  size_t (*scratch_bytes)(const LinearTask& task);
  void (*run)(const LinearTask& task, const void* packed, void* scratch);
  bool streamed;         // weights are read once: each task has all rows
  int64_t task_outputs;  // at most
  // If not streamed: tasks have at most task_rows rows, a multiple of pack_rows.
  int64_t pack_rows, task_rows;
};

// The kernel for products of `rows` rows.
typedef const LinearKernel& (*SelectLinearKernel)(int64_t rows);

}  // namespace tiny_llm_ext::cpu
