// Which keys a run of rows sees, and how many score tiles that makes: the arithmetic of tile skipping.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace tiny_llm_ext {

struct KeyRange {
  int64_t begin, end;  // empty when end <= begin
};

// The logical keys that some of the query positions first_row .. last_row sees. Row i stands at i + n_k - n_q
// and sees `left` keys before and `right` keys after that; rows from n_q on see none.
KeyRange visible_keys(int64_t first_row, int64_t last_row, int64_t n_q, int64_t n_k, int64_t left,
                      int64_t right);

struct TileCounts {
  int64_t visited, total;
};

// Score tiles of `row_tile` rows by `key_tile` keys of one KV head whose `group` query heads are folded into
// the rows (row r is position r / group), in a buffer of L positions and S keys of which n_q and n_k are
// real.
TileCounts count_tiles(int64_t L, int64_t S, int64_t n_q, int64_t n_k, int64_t group, int64_t row_tile,
                       int64_t key_tile, int64_t left, int64_t right);

// The same for all sequences of a problem, whose query heads are folded into `heads` heads.
TileCounts count_tiles(const Problem& problem, int64_t heads, int64_t row_tile, int64_t key_tile);

}  // namespace tiny_llm_ext
