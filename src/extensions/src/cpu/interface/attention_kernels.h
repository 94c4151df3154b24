// The kernels of attention and their tasks; part of kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/mask.h"

namespace tiny_llm_ext::cpu {

constexpr int kMaxHeadSize = 256;  // support.def allows no larger one

// A mask in its own layout: a stride is 0 along an axis that broadcasts. Strides count elements.
struct MaskView {
  const void* data;
  MaskKind kind;
  int64_t head_stride;
  int64_t row_stride;
  int64_t key_stride;
};

// The pages of one sequence: its logical key t lies in slot t % size of page ids[t / size]. An id outside
// 0 .. count - 1 is an absent page, which is never read: its keys are hidden. So are the pages of the ids
// before ids[first], of which no query sees a key: they may belong to other sequences by now.
struct PageTable {
  const int32_t* ids;  // null: the keys are not in pages
  int64_t count, size;
  int64_t k_stride, v_stride;  // from page to page
  int64_t first = 0;
};

// The page of logical key t, or -1.
static inline int64_t page_of(const PageTable& table, int64_t t) {
  const int64_t index = t / table.size, id = table.ids[index];
  return index >= table.first && 0 <= id && id < table.count ? id : -1;
}

// One task of the forward pass: some query rows of a KV head against a range of that head's keys. A task may
// do the same for the KV heads after it, and then has no mask: each tile of keys is read for all of them
// before the next one.
//
// The query heads of a GQA group are folded into the rows, so that one pass over a K/V tile serves all of
// them: row r is query position i = r / gqa_heads of head g = r % gqa_heads in the GQA group.
//
// Query position i has the logical position p = i + n_k - n_q and sees the logical keys
// max(0, p - left) <= t <= min(n_k - 1, p + right). Positions i >= n_q are padding: O = 0, LSE = -inf.
// Strides count elements; the last axis of q, k, v and o has stride 1.
struct ForwardTask {
  const void* q;
  int64_t q_head_stride, q_row_stride;
  const void* k;  // at logical key 0, or at slot 0 of page 0
  int64_t k_row_stride;
  const void* v;  // likewise
  int64_t v_row_stride;
  MaskView mask;       // at head 0 of the GQA group, row 0, logical key 0
  const float* sinks;  // one per head of the GQA group, or null
  void* o;
  int64_t o_head_stride, o_row_stride;
  float* lse;  // natural logarithm
  int64_t lse_head_stride, lse_row_stride;
  float* partial;  // null, or [rows][E + 2]: O before the division, m, l; o, lse, sinks unused
  int32_t E;
  int32_t gqa_heads;  // query heads per KV head
  int32_t kv_heads;   // of the task, at least 1; the other fields are those of the first
  int64_t k_head_stride, v_head_stride, partial_head_stride;  // from KV head to KV head
  int64_t row_begin, row_end;
  int64_t n_q, n_k;
  int64_t left, right;         // kUnbounded where there is no limit
  int64_t key_begin, key_end;  // logical keys to read; key_begin is a multiple of the key tile
  float scale;
  float softcap;     // 0: none
  bool fixed_order;  // of the sums over keys: the same for a row among any number of rows
  PageTable pages;
  // Schedule v1: the query tiles share the memory of their packed queries, which are read for each key tile.
  bool keys_outside;
  // To prefetch, for decode: k, v, pages.ids, key_begin and key_end of the task that probably runs next, or
  // null.
  const void *next_k, *next_v;
  const int32_t* next_ids;
  int64_t next_begin, next_end;
};

// A matrix of rows, from head to head of a GQA group; the elements of a row lie side by side. Strides count
// elements.
struct HeadMatrix {
  const void* data;
  int64_t head_stride, row_stride;
};
struct HeadMatrixOut {
  void* data;
  int64_t head_stride, row_stride;
};

// One task of a backward pass: some query rows, or some keys, of one KV head. Rows, positions and visibility
// are those of ForwardTask.
struct BackwardTask {
  HeadMatrix q, o, d_o;  // at head 0 of the GQA group, position 0
  HeadMatrix k, v;       // at logical key 0, or at slot 0 of page 0
  // Of each row, with a stride from head to head and from position to position.
  const float* lse;  // of the forward pass
  int64_t lse_head_stride, lse_row_stride;
  const float* d_lse;
  int64_t d_lse_head_stride, d_lse_row_stride;
  float* delta;  // D = rowsum(dO * O) - dLSE; row stride 1
  int64_t delta_head_stride;
  MaskView mask;         // at head 0 of the GQA group, row 0, logical key 0
  HeadMatrixOut dq;      // likewise
  HeadMatrixOut dk, dv;  // at logical key 0, also where the keys are in pages
  bool float_dkv;        // whether dk and dv are float32, not in the type of the inputs
  int32_t E, gqa_heads;
  // Rows of delta and dq; keys of dkv, where `begin` is a multiple of the key tile; all rows of dqkv, whose
  // keys are 0 .. n_k - 1.
  int64_t begin, end;
  int64_t n_q, n_k;
  int64_t left, right;
  float scale, softcap;  // softcap 0: none
  PageTable pages;
};

// The kernel of one pass.
template <class Task>
struct PassKernel {
  // Returns the number of score tiles computed, of `row_tile` rows by `key_tile` keys.
  int64_t (*run)(const Task& task, void* scratch);
  // Bytes of scratch, 64-byte aligned, for a task of `rows` rows (backward_dkv: of as many keys); independent
  // of the other length. In a task of several KV heads each counts whole row tiles.
  size_t (*scratch_bytes)(int32_t E, int64_t rows);
  int row_tile, key_tile;
  // Row tiles (backward_dkv: key tiles) of a task, which share prepared tiles of the other axis. A task of
  // backward_dqkv has all rows, and as many key tiles at a time share them.
  int tiles_per_task;
};

// The kernels of one element type: a member for each pass of support.def.
struct AttentionKernels {
  PassKernel<ForwardTask> forward;
  size_t (*keys_outside_scratch_bytes)(int32_t E, int64_t rows);  // of `forward` for a task with keys_outside
  void (*backward_delta)(const BackwardTask& task);               // D of the rows of a task
  PassKernel<BackwardTask> backward_dq;    // its rows over all keys; padding rows become 0
  PassKernel<BackwardTask> backward_dkv;   // its keys over the rows of all heads of the GQA group
  PassKernel<BackwardTask> backward_dqkv;  // all gradients of a KV head, bitwise equal; float32 only
  bool bf16_products;  // whether scores and outputs are sums of bfloat16 products; else of float32 products
  // Runs `steps` rounds of these kernels' multiply-adds on registers alone and returns the floating-point
  // operations done. On AMX, products with dense float32 or float16 weights can exceed that: they run as
  // split bfloat16 on tiles.
  double (*peak)(int64_t steps);
};

}  // namespace tiny_llm_ext::cpu
