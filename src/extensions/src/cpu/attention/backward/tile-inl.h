// The tiles of the backward passes.
//
// Both passes have one axis of the scores across the lanes and stream the other one past it, tile by tile:
// dQ has query rows in the lanes and streams keys; dK and dV have keys in the lanes and stream query rows.
// All products have the form C[m][lane] (+)= A[m][step] * B[step][lane], in which A is a streamed tile in its
// own layout and B the packed lanes, P or dS. Gradients are accumulated transposed, [E][lanes].
#pragma once

#include <math.h>

#include "cpu/attention/mask-inl.h"
#include "cpu/attention/pages-inl.h"
#include "cpu/attention/softmax_state.h"
#include "cpu/gemm/microkernel-inl.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Query rows or keys in the lanes.
struct LaneTile {
  float* score_operand;  // [steps][lanes]: Q or K, whose product with the streamed tile is S
  float* value_operand;  // [steps][lanes]: dO or V, whose product is dP
  float* sums[2];        // [E][lanes] each: dQ, or dV and dK
  int64_t begin;         // row or key of lane 0
  int count, vectors;

  int lanes() const { return vectors * kLanes; }
};

// A streamed tile, prepared for both kinds of products.
struct StreamedRows {
  const void* along_E;     // row by row, reduced over E
  const void* along_rows;  // reduced over the rows
  int64_t along_E_stride, along_rows_stride;
};

// The operands of a query row that takes no part.
alignas(64) static const float kZeroRow[kMaxHeadSize] = {};

// The keys first .. last that a query row sees by position, its LSE as the kernels subtract it, and its D. A
// row that sees no key, or whose LSE is -inf, takes no part: an LSE of +inf gives P = 0.
struct RowState {
  int64_t first, last;
  float lse, delta;

  bool takes_part() const { return lse != INFINITY; }
};

VEC_FN int64_t row_offset(const BackwardTask& task, int64_t row, const HeadMatrix& rows) {
  return (row / task.gqa_heads) * rows.row_stride + (row % task.gqa_heads) * rows.head_stride;
}

VEC_FN RowState row_state(const BackwardTask& task, int64_t row) {
  const int64_t i = row / task.gqa_heads, head = row % task.gqa_heads, position = i + task.n_k - task.n_q;
  RowState state = {first_key(position, task.left), last_key(position, task.n_k, task.right),
                    task.lse[head * task.lse_head_stride + i * task.lse_row_stride],
                    task.delta[head * task.delta_head_stride + i]};
  if (state.last < state.first) state.first = 0, state.last = -1;
  if (state.lse == -INFINITY || state.last < 0) state.lse = INFINITY, state.delta = 0;
  return state;
}

constexpr int kMaxTileRows = 128;  // in the lanes or streamed
static_assert(kTileLanes <= kMaxTileRows);

// What a score tile needs to know of its query rows. Keys are relative to the first key of the tile.
struct RowStates {
  alignas(64) float lse[kMaxTileRows], delta[kMaxTileRows], first[kMaxTileRows], last[kMaxTileRows];
  // LSE / ln(2), in two parts: rounded to one, it would lose a digit of P for every digit of LSE.
  alignas(64) float log2_high[kMaxTileRows], log2_low[kMaxTileRows];
  bool large = false;  // whether some |LSE| exceeds kRoundedLimit

  inline __attribute__((always_inline)) void set(int row, const RowState& state, int64_t key_begin,
                                                 int keys) {
    const int64_t first_key = state.first - key_begin, last_key = state.last - key_begin;
    lse[row] = state.lse;
    delta[row] = state.delta;
    first[row] = (float)(first_key > keys ? keys : first_key < 0 ? 0 : first_key);
    last[row] = (float)(last_key > keys ? keys : last_key < -1 ? -1 : last_key);
    const double log2 = state.lse * (1 / kLn2);
    log2_high[row] = (float)log2;
    log2_low[row] = state.takes_part() ? (float)(log2 - (double)log2_high[row]) : 0;
    large |= state.takes_part() && !cpu::uses_rounded_product(state.lse);
  }
};

// The scratch memory of a task: lane tiles with `sums` accumulators each, two prepared streamed matrices, S
// and dP, and the mask tile.
template <class Products>
struct BackwardWorkspace {
  float *tiles, *streamed[2], *s, *dp, *mask;
  size_t operand_floats, sum_floats, total_floats;
  int sums;
  static_assert(Products::kStreamRows <= kMaxTileRows && Products::kStreamRows % 2 == 0);

  BackwardWorkspace(void* memory, int E, int64_t extent, int sums) : sums(sums) {
    const int64_t count = divide_up(extent, kTileLanes);
    const size_t score_floats = (size_t)Products::kStreamRows * kTileLanes;
    operand_floats = (size_t)Products::steps(E) * kTileLanes;
    sum_floats = (size_t)Products::output_rows(E) * kTileLanes;
    tiles = (float*)memory;
    streamed[0] = tiles + count * (2 * operand_floats + sums * sum_floats);
    streamed[1] = streamed[0] + Products::prepared_floats(E);
    s = streamed[1] + Products::prepared_floats(E);
    dp = s + score_floats;
    mask = dp + score_floats;
    total_floats = mask + score_floats - tiles;
  }

  LaneTile tile(int n, int E, int64_t begin, int64_t end) const {
    LaneTile tile;
    tile.begin = begin;
    tile.count = (int)(end - begin < kTileLanes ? end - begin : kTileLanes);
    tile.vectors = (tile.count + kLanes - 1) / kLanes;
    tile.score_operand = tiles + n * (2 * operand_floats + sums * sum_floats);
    tile.value_operand = tile.score_operand + operand_floats;
    tile.sums[0] = tile.value_operand + operand_floats;
    tile.sums[1] = tile.sums[0] + (sums - 1) * sum_floats;
    for (int n = 0; n < sums; n++)
      for (int x = 0; x < Products::output_rows(E) * tile.lanes(); x++) tile.sums[n][x] = 0;
    return tile;
  }
};

template <class Products, int kSums>
static size_t backward_scratch_bytes(int32_t E, int64_t extent) {
  return BackwardWorkspace<Products>((void*)64, E, extent, kSums).total_floats * sizeof(float);
}

// row(lane) is the address of a lane's elements.
template <class Products, class Row>
VEC_FN void pack_operand(const LaneTile& tile, int E, float* out, Row row) {
  pack_transposed(tile.count, tile.vectors, Products::steps(E), out,
                  [&](int lane, int unit)
                      __attribute__((always_inline)) { return Products::read(row(lane), unit, E); });
}

// Stores accumulated gradients times `factor`; row(lane) is the address to write to.
template <Element kElement, class Row>
VEC_FN void store_gradient(const LaneTile& tile, const float* sums, int E, float factor, Row row) {
  typedef StorageOf<kElement> T;
  for (int v = 0; v < tile.vectors; v++)
    for (int e = 0; e < E; e += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++)
        block[j] =
            e + j < E ? mul(load(sums + (size_t)(e + j) * tile.lanes() + v * kLanes), set1(factor)) : zero();
      transpose(block);
      for (int j = 0; j < kLanes && v * kLanes + j < tile.count; j++)
        store_some<kElement>((T*)row(v * kLanes + j) + e, block[j], E - e);
    }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
