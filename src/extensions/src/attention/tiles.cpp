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

static int64_t tiles_of(int64_t rows, int64_t keys, int64_t row_tile, int64_t key_tile) {
  return divide_up(rows, row_tile) * divide_up(keys, key_tile);
}

static int64_t visited_tiles(int64_t n_q, int64_t n_k, int64_t gqa_heads, int64_t row_tile, int64_t key_tile,
                             int64_t left, int64_t right) {
  int64_t visited = 0;
  for (int64_t row = 0; row < n_q * gqa_heads; row += row_tile) {
    int64_t last = std::min(row + row_tile, n_q * gqa_heads) - 1;
    KeyRange keys = visible_keys(row / gqa_heads, last / gqa_heads, n_q, n_k, left, right);
    if (keys.begin < keys.end) visited += (keys.end - 1) / key_tile - keys.begin / key_tile + 1;
  }
  return visited;
}

// The sum of count(sequence) over the sequences and heads of a problem.
template <class Count>
static int64_t sum_over_sequences(const Problem& problem, int64_t heads, Count count) {
  if (problem.sequences.empty()) return saturating_product({problem.B, heads, count(problem.whole_entry(0))});
  int64_t sum = 0;
  for (const Sequence& sequence : problem.sequences)
    sum = saturating_sum(sum, saturating_product({heads, count(sequence)}));
  return sum;
}

TileCounts count_tiles(int64_t L, int64_t S, int64_t n_q, int64_t n_k, int64_t gqa_heads, int64_t row_tile,
                       int64_t key_tile, int64_t left, int64_t right) {
  return {visited_tiles(n_q, n_k, gqa_heads, row_tile, key_tile, left, right),
          tiles_of(L * gqa_heads, S, row_tile, key_tile)};
}

TileCounts count_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile) {
  const auto visited = [&](const Sequence& sequence) {
    return visited_tiles(sequence.n_q, sequence.n_k, problem.Hq / heads, row_tile, key_tile, problem.left,
                         problem.right);
  };
  return {sum_over_sequences(problem, heads, visited), total_tiles(problem, heads, row_tile, key_tile)};
}

int64_t total_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile) {
  return sum_over_sequences(problem, heads, [&](const Sequence& sequence) {
    return tiles_of(sequence.q_rows * (problem.Hq / heads), sequence.k_rows, row_tile, key_tile);
  });
}

}  // namespace tiny_llm_ext
