// The forward pass of one task: its query tiles against its range of keys, one key tile at a time.
//
// Operands (float_operands-inl.h, bf16_operands-inl.h, amx_operands-inl.h) say how Q, K, V and P are stored
// and multiplied:
//   kElement, kBf16Products     type of the inputs; whether products are bfloat16
//   kKeyTile                    keys of a tile
//   kQueryTilesPerTask          query tiles that share a prepared key tile
//   kReadsAddresses             whether `prepare` reads rows by address, where pages are small
//   kSharesLanes                whether several lanes may share a row, see query_tile-inl.h
//   steps(E), output_rows(E)    vectors of packed queries, and of O
//   prepared_floats(E)          memory of a prepared key tile
//   enter(), leave()            before the first and after the last product of a task
//   read_query                  one vector of a query row
//   prepare                     K and V of a key tile in the layout of the products
//   scores, values              S = Q K^T and O += P V
//   exponentials                P of one row vector in the layout of `values`; returns their sum
//   peak(steps)                 runs the multiply units on registers; returns the operations done
#pragma once

#include "cpu/attention/epilogue-inl.h"
#include "cpu/attention/float_operands-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The scratch memory of one task: query tiles, prepared K/V tile, scores, packed mask, what find_rows needs,
// and the finite values of a key tile. Tiles may share the memory of their queries: then the results are all
// that grows with the rows.
template <class Operands>
struct Workspace {
  QueryTile* headers;
  float *results, *queries, *keys, *scores, *mask, *gathered, *finite;
  size_t total_floats;

  Workspace(void* memory, int E, int64_t rows, bool share_queries = false)
      : steps_(Operands::steps(E)), E_(Operands::output_rows(E)), share_queries_(share_queries) {
    int64_t count = (rows + kTileLanes - 1) / kTileLanes;
    headers = (QueryTile*)memory;
    results = (float*)((char*)memory + round_up(count * sizeof(QueryTile), 64));
    queries = results + count * result_floats(E_);
    keys = queries + (share_queries ? 1 : count) * query_floats(steps_);
    scores = keys + Operands::prepared_floats(E);
    mask = scores + kScoreFloats<Operands>;
    gathered = mask + kScoreFloats<Operands>;
    finite = gathered + gathered_floats(Operands::kKeyTile, E);
    total_floats = finite + (size_t)Operands::kKeyTile * padded(E) - (float*)memory;
  }

  void bind(int64_t tile) const {
    bind_tile_memory(headers[tile], queries + (share_queries_ ? 0 : tile) * query_floats(steps_),
                     results + tile * result_floats(E_), steps_, E_);
  }

 private:
  int steps_, E_;
  bool share_queries_;
};

template <class Operands, bool kShareQueries = false>
static size_t scratch_bytes(int32_t E, int64_t rows) {
  return Workspace<Operands>((void*)64, E, rows, kShareQueries).total_floats * sizeof(float);
}

template <class Operands>
VEC_FN void pack_queries(const ForwardTask& task, QueryTile& tile) {
  auto read = [&](int row, int unit) __attribute__((always_inline)) {
    return Operands::read_query(task, query_offset(task, tile.begin + row), unit);
  };
  int steps = Operands::steps(task.E);
  if (tile.lanes_per_row == 1)
    pack_transposed(tile.rows, tile.vectors, steps, tile.q, read);
  else
    pack_lanes_per_row(tile.rows, tile.lanes_per_row, steps, tile.q, read);
}

// Multiplies the rows of a task up to `row_end` by its keys: `tiles` query tiles for each KV head. With
// `other_values` the values that are not finite are kept apart, see hidden_values-inl.h. Returns the number
// of score tiles.
template <class Operands>
static int64_t accumulate_task(const ForwardTask& task, const Workspace<Operands>& space, int64_t row_end,
                               int tiles, int lanes_per_row, bool other_values) {
  constexpr Element kElement = Operands::kElement;
  typedef StorageOf<kElement> T;
  const int E = task.E;
  QueryTile* const tile = space.headers;
  int64_t first = kUnbounded, last = -1, computed = 0;
  for (int t = 0; t < tiles * task.kv_heads; t++) {
    int64_t begin = task.row_begin + t % tiles * kTileLanes;
    int64_t end = begin + kTileLanes < row_end ? begin + kTileLanes : row_end;
    space.bind(t);
    start_tile(task, tile[t], begin, end, lanes_per_row, Operands::output_rows(E));
    pack_queries<Operands>(of_kv_head<kElement>(task, t / tiles), tile[t]);
    if (tile[t].any_first < first) first = tile[t].any_first;
    if (tile[t].any_last > last) last = tile[t].any_last;
  }
  if (first < task.key_begin) first = task.key_begin;
  if (last > task.key_end - 1) last = task.key_end - 1;

  for (int64_t begin = first / Operands::kKeyTile * Operands::kKeyTile; begin <= last;
       begin += Operands::kKeyTile) {
    const int count = (int)(last + 1 - begin < Operands::kKeyTile ? last + 1 - begin : Operands::kKeyTile);
    for (int head = 0; head < task.kv_heads; head++) {
      KeyTile keys = {begin, count, {}, {}};
      const ForwardTask part = of_kv_head<kElement>(task, head);
      KeyRows from =
          find_rows<T, !Operands::kReadsAddresses>(part, begin, count, Operands::kKeyTile, space.gathered);
      const SourceRows values = from.v;
      if (other_values) {
        from.v = finite_rows<kElement>(values, count, E, (T*)space.finite);
        keys.other_values = &values;
      }
      keys.absent = from.absent;
      Operands::prepare(task, from, keys, space.keys);
      for (int t = head * tiles; t < (head + 1) * tiles; t++) {
        int64_t end = tile[t].any_last < last ? tile[t].any_last : last;
        if (end < begin || tile[t].any_first >= begin + count) continue;
        if (task.keys_outside && tiles > 1) {
          find_visible_keys(task, tile[t]);
          pack_queries<Operands>(part, tile[t]);
        }
        accumulate_keys<Operands>(task, keys, tile[t], (int)(end - begin < count ? end - begin + 1 : count),
                                  space.scores, space.mask);
        computed++;
      }
    }
  }
  return computed;
}

template <class Operands>
static int64_t forward(const ForwardTask& task, void* scratch) {
  const int E = task.E, steps = Operands::steps(E);
  const int64_t valid_rows = task.n_q * task.gqa_heads;
  const int64_t row_end = task.row_end < valid_rows ? task.row_end : valid_rows;
  const int64_t rows = row_end > task.row_begin ? row_end - task.row_begin : 0;
  const bool shares_lanes = Operands::kSharesLanes && !task.fixed_order;
  const int lanes_per_row = shares_lanes ? choose_lanes_per_row(valid_rows, steps, E) : 1;
  const int tiles = (int)((rows + kTileLanes - 1) / kTileLanes);  // of a KV head
  const Workspace<Operands> space(scratch, E, (int64_t)tiles * task.kv_heads * kTileLanes, task.keys_outside);
  Operands::enter();
  const int64_t computed = accumulate_task(task, space, row_end, tiles, lanes_per_row, false);
  bool nan = false;
  for (int t = 0; t < tiles * task.kv_heads && may_hide_keys(task); t++)
    nan = nan || has_nan(space.headers[t], E);
  if (nan) accumulate_task(task, space, row_end, tiles, lanes_per_row, true);
  // All keys are in: divide by l, and store.
  for (int head = 0; head < task.kv_heads; head++) {
    const ForwardTask part = of_kv_head<Operands::kElement>(task, head);
    for (int t = head * tiles; t < (head + 1) * tiles; t++)
      store_query_tile<Operands::kElement>(part, space.headers[t]);
    if (!task.partial) store_padding<Operands::kElement>(part, task.row_begin + rows, task.row_end);
  }
  Operands::leave();
  return computed;
}

// Enters the kernels of one element type into the table.
template <class Operands, int64_t (*kForward)(const ForwardTask&, void*) = forward<Operands>>
static void register_attention(Kernels& kernels) {
  AttentionKernels& table = kernels.attention[(int)Operands::kElement];
  table.forward = {kForward, scratch_bytes<Operands>, kTileLanes, Operands::kKeyTile,
                   Operands::kQueryTilesPerTask};
  table.keys_outside_scratch_bytes = scratch_bytes<Operands, true>;
  table.bf16_products = Operands::kBf16Products;
  table.peak = Operands::peak;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
