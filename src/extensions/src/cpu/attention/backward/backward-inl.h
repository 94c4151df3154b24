// The backward kernels of one element type: D of each row; dQ, and dK with dV; in float32 also all in one
// pass.
//
// Products (float_products-inl.h, bf16_products-inl.h, amx_products-inl.h) say how the matrices are stored
// and multiplied:
//   kElement                    type of the inputs and gradients
//   kStreamRows                 streamed rows or keys of a tile, an even number
//   kLaneTilesPerTask           lane tiles that share a prepared streamed tile
//   steps(E), output_rows(E)    vectors of a packed operand, and of a gradient
//   prepared_floats(E)          memory of one prepared matrix
//   enter(), leave()            before the first and after the last product of a task
//   read                        one vector of a row of a packed operand
//   prepare                     a streamed matrix in the layouts of the products
//   multiply_along_E            S and dP
//   multiply_along_rows         gradients
//   store_factors, end_factors  P and dS in the layout of multiply_along_rows
#pragma once

#include "cpu/attention/backward/backward_dkv-inl.h"
#include "cpu/attention/backward/backward_dq-inl.h"
#include "cpu/attention/backward/backward_dqkv-inl.h"
#include "cpu/attention/backward/float_products-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
VEC_FN float dot(const StorageOf<kElement>* a, const StorageOf<kElement>* b, int E) {
  F sum = zero();
  for (int e = 0; e < E; e += kLanes)
    sum = fma(load_some<kElement>(a + e, E - e), load_some<kElement>(b + e, E - e), sum);
  float lanes[kLanes], total = 0;
  store(lanes, sum);
  for (int lane = 0; lane < kLanes; lane++) total += lanes[lane];
  return total;
}

// 0 for padding rows and for rows whose LSE is -inf, whatever their cotangents hold.
template <Element kElement>
static void backward_delta(const BackwardTask& task) {
  typedef StorageOf<kElement> T;
  for (int64_t row = task.begin; row < task.end; row++) {
    const int64_t i = row / task.gqa_heads, head = row % task.gqa_heads;
    float& delta = task.delta[head * task.delta_head_stride + i];
    delta = 0;
    if (i >= task.n_q || task.lse[head * task.lse_head_stride + i * task.lse_row_stride] == -INFINITY)
      continue;
    delta = dot<kElement>((const T*)task.o.data + row_offset(task, row, task.o),
                          (const T*)task.d_o.data + row_offset(task, row, task.d_o), task.E) -
            task.d_lse[head * task.d_lse_head_stride + i * task.d_lse_row_stride];
  }
}

// Enters the kernels of one element type into the table.
template <class Products>
static void register_backward(Kernels& kernels) {
  AttentionKernels& table = kernels.attention[(int)Products::kElement];
  table.backward_delta = backward_delta<Products::kElement>;
  table.backward_dq = {backward_dq<Products>, backward_scratch_bytes<Products, 1>, kTileLanes,
                       Products::kStreamRows, Products::kLaneTilesPerTask};
  table.backward_dkv = {backward_dkv<Products>, backward_scratch_bytes<Products, 2>, Products::kStreamRows,
                        kTileLanes, Products::kLaneTilesPerTask};
  if constexpr (Products::kElement == Element::f32)
    table.backward_dqkv = {backward_dqkv<Products>, dqkv_scratch_bytes<Products>, Products::kStreamRows,
                           kTileLanes, Products::kLaneTilesPerTask};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
