// The forward pass over one task: all its query tiles against its range of keys, one key tile at a time.
#pragma once

#include "cpu/attention/epilogue-inl.h"
#include "cpu/attention/float_operands-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Scratch of one task: the tiles' state, then the prepared K/V tile, the scores, the packed mask, and K/V
// rows gathered from pages.
template <class Format>
struct Workspace {
  float *tiles, *keys, *scores, *mask, *gathered;
  size_t tile_floats, total_floats;

  Workspace(void* memory, int E, int64_t rows) {
    int64_t count = (rows + kTileLanes - 1) / kTileLanes;
    tile_floats = TINY_LLM_ISA::tile_floats(Format::steps(E), Format::output_rows(E));
    tiles = (float*)memory;
    keys = tiles + count * tile_floats;
    scores = keys + Format::key_floats(E);
    mask = scores + kScoreFloats<Format>;
    gathered = mask + kScoreFloats<Format>;
    total_floats = gathered + 2 * Format::kKeyTile * gathered_width(E) - tiles;
  }
};

template <class Format>
static size_t scratch_bytes(int32_t E, int64_t rows) {
  return Workspace<Format>((void*)64, E, rows).total_floats * sizeof(float);
}

template <class Format>
VEC_FN void pack_queries(const ForwardTask& task, RowTile& tile) {
  auto read = [&](int row, int unit) __attribute__((always_inline)) {
    return Format::read_query(task, query_offset(task, tile.begin + row), unit);
  };
  int steps = Format::steps(task.E);
  if (tile.spread == 1)
    pack_transposed(tile.rows, tile.vectors, steps, tile.q, read);
  else
    pack_spread(tile.rows, tile.spread, steps, tile.q, read);
}

template <class Format>
static int64_t forward(const ForwardTask& task, void* scratch) {
  typedef StorageOf<Format::kElement> T;
  const int E = task.E, steps = Format::steps(E);
  const int64_t real_rows = task.n_q * task.group;
  const int64_t row_end = task.row_end < real_rows ? task.row_end : real_rows;
  const int64_t rows = row_end > task.row_begin ? row_end - task.row_begin : 0;
  const int spread = Format::kSpreads ? choose_spread(real_rows, steps, E) : 1;
  const int tiles = (int)((rows + kTileLanes - 1) / kTileLanes);
  Workspace<Format> space(scratch, E, rows);
  int64_t computed = 0;
  Format::enter();

  RowTile tile[Format::kTilesPerTask];
  int64_t first = kUnbounded, last = -1;
  for (int t = 0; t < tiles; t++) {
    int64_t begin = task.row_begin + t * kTileLanes;
    int64_t end = begin + kTileLanes < row_end ? begin + kTileLanes : row_end;
    place_tile(tile[t], space.tiles + t * space.tile_floats, steps, Format::output_rows(E));
    start_tile(task, tile[t], begin, end, spread, Format::output_rows(E));
    pack_queries<Format>(task, tile[t]);
    if (tile[t].some_first < first) first = tile[t].some_first;
    if (tile[t].some_last > last) last = tile[t].some_last;
  }
  if (first < task.key_begin) first = task.key_begin;
  if (last > task.key_end - 1) last = task.key_end - 1;

  for (int64_t begin = first / Format::kKeyTile * Format::kKeyTile; begin <= last;
       begin += Format::kKeyTile) {
    KeyTile keys = {
        begin, (int)(last + 1 - begin < Format::kKeyTile ? last + 1 - begin : Format::kKeyTile), {}, {}};
    KeyRows from = find_rows<T>(task, begin, keys.keys, Format::kKeyTile, space.gathered);
    Format::prepare(task, from, keys, space.keys);
    for (int t = 0; t < tiles; t++) {
      int64_t end = tile[t].some_last < last ? tile[t].some_last : last;
      if (end < begin || tile[t].some_first >= begin + keys.keys) continue;
      int count = (int)(end - begin < keys.keys ? end - begin + 1 : keys.keys);
      attend<Format>(task, keys, tile[t], count, space.scores, space.mask);
      computed++;
    }
  }
  for (int t = 0; t < tiles; t++) finish_tile<Format::kElement>(task, tile[t]);
  if (!task.partial) finish_padding<Format::kElement>(task, task.row_begin + rows, task.row_end);
  Format::leave();
  return computed;
}

// Fills one element type's column of the table.
template <class Format, int64_t (*kForward)(const ForwardTask&, void*) = forward<Format>>
static void offer(Kernels& kernels) {
  int element = (int)Format::kElement;
  kernels.forward[element] = kForward;
  kernels.scratch_bytes[element] = scratch_bytes<Format>;
  kernels.row_tile[element] = kTileLanes;
  kernels.key_tile[element] = Format::kKeyTile;
  kernels.tiles_per_task[element] = Format::kTilesPerTask;
  kernels.bf16_products[element] = Format::kBf16Products;
  kernels.peak[element] = Format::peak;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
