// dK and dV: the keys of a task over the query rows that see them, of all heads of the GQA group.
#pragma once

#include "cpu/attention/backward/key_rows-inl.h"
#include "cpu/attention/backward/score_gradient-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The rows that see any of the keys first .. last; none if end <= begin.
struct RowSpan {
  int64_t begin, end;
};

VEC_FN RowSpan rows_that_see(const BackwardTask& task, int64_t first, int64_t last) {
  const int64_t shift = task.n_k - task.n_q;
  int64_t begin = first - task.right - shift, end = last + task.left - shift + 1;
  if (begin < 0) begin = 0;
  if (end > task.n_q) end = task.n_q;
  return {begin * task.gqa_heads, end * task.gqa_heads};
}

struct KeyLanes {
  LaneTile lanes;
  RowSpan rows;
};

// A streamed tile of query rows.
template <class Products>
struct StreamedQueries {
  int64_t begin;
  int count;
  RowState state[Products::kStreamRows];
  StreamedRows q, d_o;
};

template <class Products>
static void prepare_queries(const BackwardTask& task, StreamedQueries<Products>& rows,
                            const BackwardWorkspace<Products>& space) {
  typedef StorageOf<Products::kElement> T;
  for (int j = 0; j < rows.count; j++) rows.state[j] = row_state(task, rows.begin + j);
  const auto row_of = [&](const HeadMatrix& matrix) __attribute__((always_inline)) {
    return [&](int j) __attribute__((always_inline)) {
      if (!rows.state[j].takes_part()) return (const T*)kZeroRow;
      return (const T*)matrix.data + row_offset(task, rows.begin + j, matrix);
    };
  };
  rows.q = Products::prepare(rows.count, task.E, true, row_of(task.q), space.streamed[0]);
  rows.d_o = Products::prepare(rows.count, task.E, true, row_of(task.d_o), space.streamed[1]);
}

// The mask of a tile with keys in the lanes: out[row][lane].
VEC_FN void copy_mask(const BackwardTask& task, const LaneTile& keys, int64_t row_begin, int rows,
                      float* out) {
  const MaskView& mask = task.mask;
  for (int j = 0; j < rows; j++) {
    const int64_t row = row_begin + j;
    const int64_t offset = (row % task.gqa_heads) * mask.head_stride +
                           (row / task.gqa_heads) * mask.row_stride + keys.begin * mask.key_stride;
    for (int lane = 0; lane < keys.lanes(); lane += kLanes)
      store(out + j * keys.lanes() + lane,
            read_mask(mask, offset + lane * mask.key_stride, keys.count - lane));
  }
}

// What a pass over the keys does for dQ; the pass of dK and dV alone does nothing.
struct NoQueryGradient {
  VEC_FN void pack_keys(const BackwardTask&, int, const LaneTile&) {}
  VEC_FN void load_rows(const BackwardTask&, int64_t, int) {}
  VEC_FN void accumulate(int, const LaneTile&, int, const float*) {}
  VEC_FN void store_rows(const BackwardTask&, int64_t, int) {}
};

// Leaves dS in space.dp.
template <class Products>
static void accumulate_dkv(const BackwardTask& task, const KeyLanes& keys,
                           const StreamedQueries<Products>& rows, int count,
                           const BackwardWorkspace<Products>& space) {
  const LaneTile& lanes = keys.lanes;
  RowStates states;
  bool limited = false;
  for (int j = 0; j < count; j++) {
    states.set(j, rows.state[j], lanes.begin, lanes.lanes());
    limited |= rows.state[j].first > lanes.begin || rows.state[j].last < lanes.begin + lanes.count - 1;
  }
  if (task.mask.kind != MaskKind::none) copy_mask(task, lanes, rows.begin, count, space.mask);
  Products::multiply_along_E(rows.q, count, lanes.score_operand, lanes.vectors, task.E, space.s);
  Products::multiply_along_E(rows.d_o, count, lanes.value_operand, lanes.vectors, task.E, space.dp);
  const ScoreTile<RowAxis::streamed> tile = {states, task.mask.kind != MaskKind::none ? space.mask : nullptr,
                                             task.scale, task.softcap};
  score_gradients<Products>(tile, limited, count, lanes.lanes(), space.s, space.dp);
  Products::multiply_along_rows(rows.d_o, count, space.s, lanes.vectors, task.E, lanes.sums[0]);
  Products::multiply_along_rows(rows.q, count, space.dp, lanes.vectors, task.E, lanes.sums[1]);
}

template <Element kElement>
static void store_dkv(const BackwardTask& task, const LaneTile& keys) {
  const auto key_out = [&](const HeadMatrixOut& matrix) __attribute__((always_inline)) {
    return [&](int lane) __attribute__((always_inline)) {
      return (StorageOf<kElement>*)matrix.data + (keys.begin + lane) * matrix.row_stride;
    };
  };
  store_gradient<kElement>(keys, keys.sums[0], task.E, 1, key_out(task.dv));
  store_gradient<kElement>(keys, keys.sums[1], task.E, task.scale, key_out(task.dk));
}

// The keys task.begin .. task.end - 1.
template <class Products, class QueryGradient>
static int64_t accumulate_rows(const BackwardTask& task, void* scratch, const QueryGradient& dq) {
  typedef StorageOf<Products::kElement> T;
  const int E = task.E;
  const int64_t end = task.end < task.n_k ? task.end : task.n_k;
  const int64_t keys = end > task.begin ? end - task.begin : 0;
  const int tiles = (int)divide_up(keys, kTileLanes);
  const BackwardWorkspace<Products> space(scratch, E, keys, 2);
  int64_t computed = 0;

  KeyLanes tile[Products::kLaneTilesPerTask];
  RowSpan all = {kUnbounded, 0};
  for (int t = 0; t < tiles; t++) {
    LaneTile& lanes = tile[t].lanes = space.tile(t, E, task.begin + t * kTileLanes, end);
    const KeyRowAddresses<T> at(task, lanes.begin, lanes.count);
    pack_operand<Products>(lanes, E, lanes.score_operand,
                           [&](int lane) __attribute__((always_inline)) { return at.k[lane]; });
    pack_operand<Products>(lanes, E, lanes.value_operand,
                           [&](int lane) __attribute__((always_inline)) { return at.v[lane]; });
    dq.pack_keys(task, t, lanes);
    tile[t].rows = rows_that_see(task, lanes.begin, lanes.begin + lanes.count - 1);
    if (tile[t].rows.end <= tile[t].rows.begin) continue;
    if (tile[t].rows.begin < all.begin) all.begin = tile[t].rows.begin;
    if (tile[t].rows.end > all.end) all.end = tile[t].rows.end;
  }
  StreamedQueries<Products> rows;
  for (rows.begin = all.begin / Products::kStreamRows * Products::kStreamRows; rows.begin < all.end;
       rows.begin += Products::kStreamRows) {
    const int64_t left = all.end - rows.begin;
    rows.count = (int)(left < Products::kStreamRows ? left : Products::kStreamRows);
    prepare_queries<Products>(task, rows, space);
    dq.load_rows(task, rows.begin, rows.count);
    for (int t = 0; t < tiles; t++) {
      const int64_t tile_end = tile[t].rows.end;
      if (tile_end <= rows.begin || tile[t].rows.begin >= rows.begin + rows.count) continue;
      const int count = (int)(tile_end - rows.begin < rows.count ? tile_end - rows.begin : rows.count);
      accumulate_dkv<Products>(task, tile[t], rows, count, space);
      dq.accumulate(t, tile[t].lanes, count, space.dp);
      computed++;
    }
    dq.store_rows(task, rows.begin, rows.count);
  }
  for (int t = 0; t < tiles; t++)
    task.float_dkv ? store_dkv<Element::f32>(task, tile[t].lanes)
                   : store_dkv<Products::kElement>(task, tile[t].lanes);
  return computed;
}

template <class Products>
static int64_t backward_dkv(const BackwardTask& task, void* scratch) {
  Products::enter();
  const int64_t computed = accumulate_rows<Products>(task, scratch, NoQueryGradient{});
  Products::leave();
  return computed;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
