// What one instruction set offers: plain pointers in, plain pointers out.
//
// This header is all that the kernel files (isa_*.cpp) share with the rest of the extension. They are
// compiled with instruction-set flags, so they may include neither the STL nor MLX: an inline function
// emitted there could become the copy that every other file calls.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/element.h"
#include "core/mask.h"
#include "cpu/kernels/linear_task.h"
#include "cpu/kernels/row_kernels.h"

namespace tiny_llm_ext::cpu {

// A mask as the caller laid it out; a stride is 0 where the mask is broadcast. Strides count elements.
struct MaskView {
  const void* data;
  MaskKind kind;
  int64_t head_stride;
  int64_t row_stride;
  int64_t key_stride;
};

// The pages of one sequence: its logical key t lies in slot t % size of page ids[t / size]. An id outside
// 0 .. count - 1 is an absent page, which nobody reads; its keys must be hidden by the mask.
struct PageTable {
  const int32_t* ids;  // null: the keys are not in pages
  int64_t count, size;
  int64_t k_stride, v_stride;  // from page to page
};

// One unit of forward work: some query rows of one KV head against a range of that head's keys.
//
// The query heads that share a KV head are folded into the rows: flattened row r is query position
// i = r / group of the group's head g = r % group. So one pass over a K/V tile serves all of them.
//
// Row i stands at logical position p = i + n_k - n_q and sees the logical keys
// max(0, p - left) <= t <= min(n_k - 1, p + right). Rows i >= n_q are padding: O = 0, LSE = -inf.
// Strides count elements, the last axis of q, k, v and o has stride 1.
struct ForwardTask {
  const void* q;
  int64_t q_head_stride, q_row_stride;
  const void* k;  // at logical key 0, or at slot 0 of page 0
  int64_t k_row_stride;
  const void* v;  // likewise
  int64_t v_row_stride;
  MaskView mask;       // at head 0 of the group, row 0, logical key 0
  const float* sinks;  // one per head of the group, or null
  void* o;
  int64_t o_head_stride, o_row_stride;
  float* lse;  // natural logarithm; row stride 1
  int64_t lse_head_stride;
  float* partial;  // null, or [rows][E + 2]: O before the division, m, l; o, lse, sinks unused
  int32_t E;
  int32_t group;
  int64_t row_begin, row_end;
  int64_t n_q, n_k;
  int64_t left, right;         // kUnbounded where there is no limit
  int64_t key_begin, key_end;  // logical keys to look at; key_begin is a multiple of the key tile
  float scale;
  float softcap;  // 0: none
  PageTable pages;
  // For forms of one position: the first keys of what is probably calculated next, k_row_stride apart; or
  // null.
  const void* next_k;
};

// One unit of a quantized product: some rows of y (M, N) = x (M, K) w^T at some outputs n.
//
// Row n of w holds K numbers q of `bits` bits in 32-bit words, the lowest bits first; each `group` of them
// stands for q * scale + bias. x, scales, biases and y have one element type. Strides count elements, the
// last axis of everything has stride 1.
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
  int64_t groups;         // K / group
  int32_t group;          // 32, 64 or 128
  int32_t bits;           // 4 or 8
  bool few;               // the whole product has few rows, and each task all of them
};

// Quantized products of one element type. First x is packed, `pack_rows` rows at a time or, if they are few,
// in one piece; the packed pieces lie behind each other. Then each task runs on the packed rows that are its
// own. Where a packed piece has no bytes, x is used as it is. Few rows, and many that
// are taken few at a time, are read once more by tasks: some of their elements are multiplied as they are.
struct QuantizedKernels {
  size_t (*packed_bytes)(const QuantizedTask& task);
  void (*pack)(const QuantizedTask& task, void* packed);
  size_t (*scratch_bytes)(const QuantizedTask& task);
  void (*run)(const QuantizedTask& task, const void* packed, void* scratch);
  int few_rows;                     // up to here rows are few
  int64_t pack_rows;                // of many
  int64_t task_rows, task_outputs;  // of a task of many, at most; task_rows is a multiple of pack_rows
};

// One instruction set, attention first. `forward` visits key tiles of `key_tile` keys, and query tiles of
// `row_tile` rows; it returns how many (query tile, key tile) pairs it computed.
struct Kernels {
  const char* name;
  int64_t (*forward[kElements])(const ForwardTask& task, void* scratch);
  // Bytes of scratch for a task of so many rows; independent of the number of keys. 64-byte aligned.
  size_t (*scratch_bytes[kElements])(int32_t E, int64_t rows);
  int row_tile[kElements];
  int key_tile[kElements];
  // Row tiles that one task should hold, so that preparing a K/V tile is shared.
  int tiles_per_task[kElements];
  // Whether scores and outputs are sums of bfloat16 products; float32 products otherwise.
  bool bf16_products[kElements];
  // What the multiply units reach on registers alone: runs `steps` rounds, returns the floating-point
  // operations done. The yardstick of `bench attention`.
  double (*peak[kElements])(int64_t steps);

  QuantizedKernels quantized[kElements];
  RowKernels rows[kElements];
  FormOfRows linear[kElements];
};

// One getter an instruction set, defined in isa_<name>.cpp.
const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();
const Kernels& neon_kernels();

}  // namespace tiny_llm_ext::cpu
