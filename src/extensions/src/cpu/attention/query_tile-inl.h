// The state of one query tile while it walks over the keys: packed queries, m, l and the output accumulator.
//
// Everything is held transposed, queries across the lanes: a score vector is (one key) x (kLanes queries). So
// the softmax statistics are plain vertical vector operations, and both products read K and V in their
// natural layout, one broadcast element at a time.
//
// With few rows a vector would be mostly empty. Then `spread` neighbouring lanes share a row and each takes
// every spread-th element of the head dimension; the scores are summed over the group afterwards.
#pragma once

#include <math.h>

#include "cpu/attention/softmax_state.h"
#include "cpu/gemm/gemm-inl.h"
#include "cpu/kernels/kernels.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct RowTile {
  float* q;        // [steps][lanes] packed queries
  float* o;        // [E / spread][lanes] unnormalised output
  float* m;        // [lanes] running reference of the exponentials
  float* l;        // [lanes] running sum
  int64_t* first;  // [rows] first and last logical key that the row sees
  int64_t* last;
  int64_t begin;  // flattened row of lane 0
  int rows;
  int vectors;
  int spread;
  // Keys that some row sees, and keys that every row sees.
  int64_t some_first, some_last, every_first, every_last;

  int lanes() const { return vectors * kLanes; }
};

// Floats of memory one tile needs, for `steps` packed query vectors and `E` output rows of at most
// kTileLanes.
VEC_FN size_t tile_floats(int steps, int E) { return (size_t)kTileLanes * (steps + E + 2 + 4); }

VEC_FN void place_tile(RowTile& tile, float* memory, int steps, int E) {
  tile.q = memory;
  tile.o = tile.q + (size_t)kTileLanes * steps;
  tile.m = tile.o + (size_t)kTileLanes * E;
  tile.l = tile.m + kTileLanes;
  tile.first = (int64_t*)(tile.l + kTileLanes);
  tile.last = tile.first + kTileLanes;
}

// The widest spread that still gives every row of the sequence its lanes. It depends on that sequence's own
// size only, so that a row's bits do not depend on how the rows were cut into tiles.
VEC_FN int choose_spread(int64_t sequence_rows, int steps, int E) {
  int spread = 1;
  while (spread < kLanes && sequence_rows * spread * 2 <= kLanes && steps % (spread * 2) == 0 &&
         E % (spread * 2) == 0)
    spread *= 2;
  return spread;
}

VEC_FN void start_tile(const ForwardTask& task, RowTile& tile, int64_t begin, int64_t end, int spread,
                       int E_padded) {
  tile.begin = begin;
  tile.rows = (int)(end - begin);
  tile.spread = spread;
  tile.vectors = (tile.rows * spread + kLanes - 1) / kLanes;
  tile.some_first = tile.every_last = kUnbounded;
  tile.some_last = tile.every_first = -1;
  for (int r = 0; r < tile.rows; r++) {
    int64_t i = (begin + r) / task.group;
    int64_t position = i + task.n_k - task.n_q;
    int64_t first = position - task.left, last = position + task.right;
    if (first < 0) first = 0;
    if (last > task.n_k - 1) last = task.n_k - 1;
    if (i >= task.n_q || last < first) first = 0, last = -1;
    tile.first[r] = first;
    tile.last[r] = last;
    if (last >= first && first < tile.some_first) tile.some_first = first;
    if (last > tile.some_last) tile.some_last = last;
    if (first > tile.every_first) tile.every_first = first;
    if (last < tile.every_last) tile.every_last = last;
  }
  for (int lane = 0; lane < tile.lanes(); lane++) tile.m[lane] = -INFINITY, tile.l[lane] = 0;
  for (int n = E_padded / spread * tile.lanes(), x = 0; x < n; x++) tile.o[x] = 0;
}

VEC_FN int64_t query_offset(const ForwardTask& task, int64_t row) {
  return (row / task.group) * task.q_row_stride + (row % task.group) * task.q_head_stride;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
