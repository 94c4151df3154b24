// dQ: the query rows of a task over the keys that they see.
#pragma once

#include "cpu/attention/backward/key_rows-inl.h"
#include "cpu/attention/backward/score_gradient-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// A tile of query rows: which keys each row sees, any row sees, and all rows see.
struct QueryRows {
  LaneTile lanes;
  RowState state[kTileLanes];
  int64_t any_first, any_last, all_first, all_last;
};

template <class Products>
static void start_query_rows(const BackwardTask& task, QueryRows& rows) {
  typedef StorageOf<Products::kElement> T;
  rows.any_first = rows.all_last = kUnbounded;
  rows.any_last = rows.all_first = -1;
  for (int lane = 0; lane < kTileLanes; lane++) {
    if (lane >= rows.lanes.count) {
      rows.state[lane] = {0, kUnbounded, INFINITY, 0};
      continue;
    }
    RowState& state = rows.state[lane] = row_state(task, rows.lanes.begin + lane);
    if (state.first > rows.all_first) rows.all_first = state.first;
    if (state.last < rows.all_last) rows.all_last = state.last;
    if (state.last < state.first) continue;
    if (state.first < rows.any_first) rows.any_first = state.first;
    if (state.last > rows.any_last) rows.any_last = state.last;
  }
  const auto row_of = [&](const HeadMatrix& matrix) __attribute__((always_inline)) {
    return [&](int lane) __attribute__((always_inline)) {
      if (!rows.state[lane].takes_part()) return (const T*)kZeroRow;
      return (const T*)matrix.data + row_offset(task, rows.lanes.begin + lane, matrix);
    };
  };
  pack_operand<Products>(rows.lanes, task.E, rows.lanes.score_operand, row_of(task.q));
  pack_operand<Products>(rows.lanes, task.E, rows.lanes.value_operand, row_of(task.d_o));
}

// The mask of a tile with rows in the lanes: out[key][lane].
VEC_FN void pack_mask(const BackwardTask& task, const LaneTile& lanes, int64_t key_begin, int keys,
                      float* out) {
  const MaskView& mask = task.mask;
  pack_transposed(
      lanes.count, lanes.vectors, keys, out, [&](int lane, int key) __attribute__((always_inline)) {
        const int64_t row = lanes.begin + lane;
        return read_mask(mask,
                         (row % task.gqa_heads) * mask.head_stride +
                             (row / task.gqa_heads) * mask.row_stride + (key_begin + key) * mask.key_stride,
                         keys - key);
      });
}

// A streamed tile of keys.
struct StreamedKeys {
  int64_t begin;
  StreamedRows k, v;
  const bool* absent;  // [keys] whether a key is in an absent page; null if none is
};

// Hides the absent keys in a mask tile, which starts without any mask unless `masked`.
VEC_FN void hide_absent_keys(const bool* absent, bool masked, int keys, int lanes, float* mask) {
  for (int key = 0; key < keys; key++)
    for (int lane = 0; lane < lanes && (absent[key] || !masked); lane += kLanes)
      store(mask + key * lanes + lane, absent[key] ? set1(-INFINITY) : zero());
}

template <class Products>
static void accumulate_dq(const BackwardTask& task, const QueryRows& rows, const StreamedKeys& keys,
                          int count, const BackwardWorkspace<Products>& space) {
  const LaneTile& lanes = rows.lanes;
  RowStates states;
  for (int lane = 0; lane < lanes.lanes(); lane++) states.set(lane, rows.state[lane], keys.begin, count);
  const bool masked = task.mask.kind != MaskKind::none;
  if (masked) pack_mask(task, lanes, keys.begin, count, space.mask);
  if (keys.absent) hide_absent_keys(keys.absent, masked, count, lanes.lanes(), space.mask);
  Products::multiply_along_E(keys.k, count, lanes.score_operand, lanes.vectors, task.E, space.s);
  Products::multiply_along_E(keys.v, count, lanes.value_operand, lanes.vectors, task.E, space.dp);
  const ScoreTile<RowAxis::lanes> tile = {states, masked || keys.absent ? space.mask : nullptr, task.scale,
                                          task.softcap};
  const bool limited = keys.begin < rows.all_first || keys.begin + count - 1 > rows.all_last;
  score_gradients<Products>(tile, limited, count, lanes.lanes(), space.s, space.dp);
  Products::multiply_along_rows(keys.k, count, space.dp, lanes.vectors, task.E, lanes.sums[0]);
}

template <class Products>
static int64_t backward_dq(const BackwardTask& task, void* scratch) {
  typedef StorageOf<Products::kElement> T;
  const int E = task.E;
  const int64_t valid_rows = task.n_q * task.gqa_heads;
  const int64_t end = task.end < valid_rows ? task.end : valid_rows;
  const int64_t rows = end > task.begin ? end - task.begin : 0;
  const int tiles = (int)divide_up(rows, kTileLanes);
  const BackwardWorkspace<Products> space(scratch, E, rows, 1);
  int64_t computed = 0;
  Products::enter();

  QueryRows tile[Products::kLaneTilesPerTask];
  int64_t first = kUnbounded, last = -1;
  for (int t = 0; t < tiles; t++) {
    tile[t].lanes = space.tile(t, E, task.begin + t * kTileLanes, end);
    start_query_rows<Products>(task, tile[t]);
    if (tile[t].any_first < first) first = tile[t].any_first;
    if (tile[t].any_last > last) last = tile[t].any_last;
  }
  for (int64_t begin = first / Products::kStreamRows * Products::kStreamRows; begin <= last;
       begin += Products::kStreamRows) {
    const int keys =
        (int)(last + 1 - begin < Products::kStreamRows ? last + 1 - begin : Products::kStreamRows);
    const KeyRowAddresses<T> at(task, begin, keys);
    const StreamedKeys streamed = {
        begin,
        Products::prepare(
            keys, E, true, [&](int key) __attribute__((always_inline)) { return at.k[key]; },
            space.streamed[0]),
        Products::prepare(
            keys, E, false, [&](int key) __attribute__((always_inline)) { return at.v[key]; },
            space.streamed[1]),
        at.any_absent ? at.absent : nullptr};
    for (int t = 0; t < tiles; t++) {
      const int64_t tile_last = tile[t].any_last < last ? tile[t].any_last : last;
      if (tile_last < begin || tile[t].any_first >= begin + keys) continue;
      const int count = (int)(tile_last - begin < keys ? tile_last - begin + 1 : keys);
      accumulate_dq<Products>(task, tile[t], streamed, count, space);
      computed++;
    }
  }
  const auto row_out = [&](int64_t row) __attribute__((always_inline)) {
    return (T*)task.dq.data + (row / task.gqa_heads) * task.dq.row_stride +
           (row % task.gqa_heads) * task.dq.head_stride;
  };
  for (int t = 0; t < tiles; t++) {
    const LaneTile& lanes = tile[t].lanes;
    store_gradient<Products::kElement>(
        lanes, lanes.sums[0], E, task.scale,
        [&](int lane) __attribute__((always_inline)) { return row_out(lanes.begin + lane); });
    // A hidden key with a value of NaN makes a NaN of P = 0.
    for (int lane = 0; lane < lanes.count; lane++)
      if (!tile[t].state[lane].takes_part()) memset(row_out(lanes.begin + lane), 0, E * sizeof(T));
  }
  for (int64_t row = task.begin + rows; row < task.end; row++) memset(row_out(row), 0, E * sizeof(T));
  Products::leave();
  return computed;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
