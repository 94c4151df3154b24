// The epilogue of a query tile: sink, division by l, log-sum-exp, and the store to row-major memory.
#pragma once

#include "cpu/attention/query_tile-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The factor of each lane's accumulator, and each row's LSE: 0 and -inf for a row that saw no key. Partial
// results of a split sequence are not divided.
static void output_factors(const ForwardTask& task, const QueryTile& tile, float* factor, float* lse) {
  for (int lane = 0; lane < tile.lanes(); lane++) {
    float m = tile.m[lane], l = tile.l[lane];
    factor[lane] = task.partial || l != 0 ? 1 : 0;
    lse[lane] = -INFINITY;
    if (task.partial) continue;
    if (task.sinks)
      factor[lane] *= add_sink(task.sinks[(tile.begin + lane / tile.lanes_per_row) % task.gqa_heads], &m, &l);
    factor[lane] = l == 0 ? 0 : factor[lane] / l;
    lse[lane] = log_sum_exp(m, l);
  }
}

// The rows of one vector times their factors: rows[j][e].
static void transpose_output(const QueryTile& tile, int vector, int E, const float* factor,
                             float rows[kLanes][kMaxHeadSize]) {
  const float* o = tile.o + vector * kLanes;
  if (tile.lanes_per_row > 1) {
    for (int e = 0; e < E; e++)
      for (int row = 0; row < tile.rows; row++) {
        int lane = row * tile.lanes_per_row + e % tile.lanes_per_row;
        rows[row][e] = o[e / tile.lanes_per_row * kLanes + lane] * factor[lane];
      }
    return;
  }
  F scale = load(factor + vector * kLanes);
  for (int e = 0; e < E; e += kLanes) {
    F block[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; j++)
      block[j] = e + j < E ? mul(load(o + (size_t)(e + j) * tile.lanes()), scale) : zero();
    transpose(block);
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; j++) store(rows[j] + e, block[j]);
  }
}

VEC_FN int64_t lse_offset(const ForwardTask& task, int64_t row) {
  return (row % task.gqa_heads) * task.lse_head_stride + (row / task.gqa_heads) * task.lse_row_stride;
}

template <Element kElement>
static void store_output(const ForwardTask& task, int64_t row, const float* values) {
  auto* out = (StorageOf<kElement>*)task.o + (row % task.gqa_heads) * task.o_head_stride +
              (row / task.gqa_heads) * task.o_row_stride;
  for (int e = 0; e < task.E; e += kLanes) store_some<kElement>(out + e, load(values + e), task.E - e);
}

// Stores a row's partial result (O before the division, m, l), or its output and LSE.
template <Element kElement>
VEC_FN void store_row(const ForwardTask& task, int64_t row, const float* values, float m, float l,
                      float lse) {
  if (task.partial) {
    float* out = task.partial + (row - task.row_begin) * (task.E + 2);
    memcpy(out, values, task.E * sizeof(float));
    out[task.E] = m;
    out[task.E + 1] = l;
  } else {
    store_output<kElement>(task, row, values);
    task.lse[lse_offset(task, row)] = lse;
  }
}

template <Element kElement>
static void store_query_tile(const ForwardTask& task, const QueryTile& tile) {
  float factor[kTileLanes], lse[kTileLanes];
  output_factors(task, tile, factor, lse);
  int rows_in_vector = kLanes / tile.lanes_per_row;
  for (int vector = 0; vector < tile.vectors; vector++) {
    float values[kLanes][kMaxHeadSize];
    transpose_output(tile, vector, task.E, factor, values);
    for (int j = 0; j < rows_in_vector && vector * rows_in_vector + j < tile.rows; j++) {
      int in_tile = vector * rows_in_vector + j, lane = in_tile * tile.lanes_per_row;
      store_row<kElement>(task, tile.begin + in_tile, values[j], tile.m[lane], tile.l[lane], lse[lane]);
    }
  }
}

// Padding rows: O = 0, LSE = -inf.
template <Element kElement>
static void store_padding(const ForwardTask& task, int64_t begin, int64_t end) {
  float values[kMaxHeadSize] = {};
  for (int64_t row = begin; row < end; row++) {
    store_output<kElement>(task, row, values);
    task.lse[lse_offset(task, row)] = -INFINITY;
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
