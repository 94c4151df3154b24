// Counters of the latest attention that ran in this process.
#pragma once

#include <cstdint>
#include <string>

#include "attention/problem.h"

namespace tiny_llm_ext {

struct LastRun {
  std::string path;  // as in Explanation; empty before the first run
  int64_t tiles_visited = 0, tiles_total = 0, splits = 0;
  std::string isa;  // empty for a graph of MLX operations
  int threads = 0;
  // Of a gradient the tiles above are those of dQ, and these are those of dK and dV; one pass has the same.
  int64_t key_tiles_visited = 0, key_tiles_total = 0;
  std::string backward_schedule = "";  // of kernels of a gradient, as in Explanation
};

// The counters of a graph of MLX operations.
LastRun graph_run(const char* path, const Problem& problem);

void record_run(LastRun run);
LastRun last_run();

}  // namespace tiny_llm_ext
