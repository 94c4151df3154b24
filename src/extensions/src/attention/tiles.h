// Tile skipping: which keys consecutive rows see, and how many score tiles a kernel visits.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace tiny_llm_ext {

struct KeyRange {
  int64_t begin, end;  // empty when end <= begin
};

// The logical keys that any of the rows first_row .. last_row sees. Row i is at position i + n_k - n_q and
// sees `left` keys before and `right` keys after its position; rows from n_q on see no key.
KeyRange visible_keys(int64_t first_row, int64_t last_row, int64_t n_q, int64_t n_k, int64_t left,
                      int64_t right);

struct TileCounts {
  int64_t visited, total;
};

// Score tiles of one KV head, `row_tile` rows by `key_tile` keys. Its `gqa_heads` query heads are folded into
// the rows (row r is position r / gqa_heads). n_q of L positions and n_k of S keys are valid.
TileCounts count_tiles(int64_t L, int64_t S, int64_t n_q, int64_t n_k, int64_t gqa_heads, int64_t row_tile,
                       int64_t key_tile, int64_t left, int64_t right);

// Summed over the sequences of a problem, whose query heads are folded into `heads` heads.
TileCounts count_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile);
// Only the total of these.
int64_t total_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile);

}  // namespace tiny_llm_ext
