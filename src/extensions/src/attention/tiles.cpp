// Counts one row of tiles at a time.
#include "attention/tiles.h"

#include <algorithm>

#include "core/divide_up.h"
#include "core/saturating.h"

namespace tiny_llm_ext {

KeyRange visible_keys(int64_t first_row, int64_t last_row, int64_t n_q, int64_t n_k, int64_t left,
                      int64_t right) {
  last_row = std::min(last_row, n_q - 1);
  if (last_row < first_row) return {0, 0};
  int64_t shift = n_k - n_q;
  return {first_key(first_row + shift, left), last_key(last_row + shift, n_k, right) + 1};
}

int64_t total_tiles(int64_t rows, int64_t keys, int64_t row_tile, int64_t key_tile) {
  return divide_up(rows, row_tile) * divide_up(keys, key_tile);
}

TileCounts count_tiles(int64_t L, int64_t S, int64_t n_q, int64_t n_k, int64_t gqa_heads, int64_t row_tile,
                       int64_t key_tile, int64_t left, int64_t right) {
  TileCounts counts{0, total_tiles(L * gqa_heads, S, row_tile, key_tile)};
  for (int64_t row = 0; row < n_q * gqa_heads; row += row_tile) {
    int64_t last = std::min(row + row_tile, n_q * gqa_heads) - 1;
    KeyRange keys = visible_keys(row / gqa_heads, last / gqa_heads, n_q, n_k, left, right);
    if (keys.begin < keys.end) counts.visited += (keys.end - 1) / key_tile - keys.begin / key_tile + 1;
  }
  return counts;
}

TileCounts count_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile) {
  TileCounts all = {};
  auto count = [&](const Sequence& sequence, int64_t times) {
    TileCounts counts = count_tiles(problem.L, problem.S, sequence.n_q, sequence.n_k, problem.Hq / heads,
                                    row_tile, key_tile, problem.left, problem.right);
    all.visited = saturating_sum(all.visited, saturating_product({times, counts.visited}));
    all.total = saturating_sum(all.total, saturating_product({times, counts.total}));
  };
  if (problem.sequences.empty()) {
    count({problem.L, 0, problem.S}, saturating_product({problem.B, heads}));
  } else {
    for (const Sequence& sequence : problem.sequences) count(sequence, heads);
  }
  return all;
}

}  // namespace tiny_llm_ext
