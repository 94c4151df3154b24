// The state of one query tile: packed queries, m, l and the output accumulator.
//
// All of it is transposed, queries across the lanes: a score vector is (one key) x (kLanes queries). The
// softmax statistics are then vertical vector operations, and both products read K and V in their own layout,
// one broadcast element at a time.
//
// A few rows would leave most of a vector empty. `lanes_per_row` neighbouring lanes then share a row: each
// takes every lanes_per_row-th element of the head dimension, and the scores are summed over these lanes.
#pragma once

#include <math.h>

#include "cpu/attention/softmax_state.h"
#include "cpu/gemm/microkernel-inl.h"
#include "cpu/interface/kernels.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct QueryTile {
  float* q;        // [steps / lanes_per_row][lanes] packed queries
  float* o;        // [E / lanes_per_row][lanes] output before the division by l
  float* m;        // [lanes] running maximum, see online_softmax-inl.h
  float* l;        // [lanes] running sum
  int64_t* first;  // [rows] first and last logical key that the row sees
  int64_t* last;
  int64_t begin;  // flattened row of lane 0
  int rows;
  int vectors;
  int lanes_per_row;
  // Logical keys that any row sees, and that all rows see.
  int64_t any_first, any_last, all_first, all_last;

  int lanes() const { return vectors * kLanes; }
};

// Floats of memory of one tile: of its results, m, l and `E` output vectors of kTileLanes; and of its
// queries, `steps` packed vectors and 4 for first and last, which can be computed again.
VEC_FN size_t result_floats(int E) { return (size_t)kTileLanes * (E + 2); }
VEC_FN size_t query_floats(int steps) { return (size_t)kTileLanes * (steps + 4); }

VEC_FN void bind_tile_memory(QueryTile& tile, float* queries, float* results, int steps, int E) {
  tile.q = queries;
  tile.first = (int64_t*)(tile.q + (size_t)kTileLanes * steps);
  tile.last = tile.first + kTileLanes;
  tile.o = results;
  tile.m = tile.o + (size_t)kTileLanes * E;
  tile.l = tile.m + kTileLanes;
}

// As many lanes per row as fit one vector with all rows of the sequence. This depends on the size of the
// sequence only: a row's bits do not depend on how rows are cut into tiles.
VEC_FN int choose_lanes_per_row(int64_t sequence_rows, int steps, int E) {
  int lanes_per_row = 1;
  while (lanes_per_row < kLanes && sequence_rows * lanes_per_row * 2 <= kLanes &&
         steps % (lanes_per_row * 2) == 0 && E % (lanes_per_row * 2) == 0)
    lanes_per_row *= 2;
  return lanes_per_row;
}

// The keys that the rows of a tile see.
VEC_FN void find_visible_keys(const ForwardTask& task, QueryTile& tile) {
  tile.any_first = tile.all_last = kUnbounded;
  tile.any_last = tile.all_first = -1;
  for (int r = 0; r < tile.rows; r++) {
    int64_t i = (tile.begin + r) / task.gqa_heads;
    int64_t position = i + task.n_k - task.n_q;
    int64_t first = first_key(position, task.left), last = last_key(position, task.n_k, task.right);
    if (i >= task.n_q || last < first) first = 0, last = -1;
    tile.first[r] = first;
    tile.last[r] = last;
    if (last >= first && first < tile.any_first) tile.any_first = first;
    if (last > tile.any_last) tile.any_last = last;
    if (first > tile.all_first) tile.all_first = first;
    if (last < tile.all_last) tile.all_last = last;
  }
}

VEC_FN void start_tile(const ForwardTask& task, QueryTile& tile, int64_t begin, int64_t end,
                       int lanes_per_row, int E_padded) {
  tile.begin = begin;
  tile.rows = (int)(end - begin);
  tile.lanes_per_row = lanes_per_row;
  tile.vectors = (tile.rows * lanes_per_row + kLanes - 1) / kLanes;
  find_visible_keys(task, tile);
  for (int lane = 0; lane < tile.lanes(); lane++) tile.m[lane] = -INFINITY, tile.l[lane] = 0;
  for (int n = E_padded / lanes_per_row * tile.lanes(), x = 0; x < n; x++) tile.o[x] = 0;
}

// The part of a task that belongs to one of its KV heads.
template <Element kElement>
VEC_FN ForwardTask of_kv_head(const ForwardTask& task, int head) {
  typedef StorageOf<kElement> T;
  const int64_t first = (int64_t)head * task.gqa_heads;  // query head
  ForwardTask part = task;
  part.kv_heads = 1;
  part.q = (const T*)task.q + first * task.q_head_stride;
  part.k = (const T*)task.k + head * task.k_head_stride;
  part.v = (const T*)task.v + head * task.v_head_stride;
  if (task.sinks) part.sinks += first;
  if (task.partial) {
    part.partial += head * task.partial_head_stride;
  } else {
    part.o = (T*)task.o + first * task.o_head_stride;
    part.lse += first * task.lse_head_stride;
  }
  return part;
}

VEC_FN int64_t query_offset(const ForwardTask& task, int64_t row) {
  return (row / task.gqa_heads) * task.q_row_stride + (row % task.gqa_heads) * task.q_head_stride;
}

// pack_transposed for a tile of one vector with several lanes per row: lane row * lanes_per_row + j takes
// unit step * lanes_per_row + j.
template <class Read>
VEC_FN void pack_lanes_per_row(int rows, int lanes_per_row, int units, float* out, Read read) {
  float row[kMaxHeadSize + kLanes];
  for (int x = 0; x < units / lanes_per_row * kLanes; x++) out[x] = 0;
  for (int r = 0; r < rows; r++) {
    for (int unit = 0; unit < units; unit += kLanes) store(row + unit, read(r, unit));
    for (int step = 0; step < units / lanes_per_row; step++)
      for (int j = 0; j < lanes_per_row; j++)
        out[step * kLanes + r * lanes_per_row + j] = row[step * lanes_per_row + j];
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
