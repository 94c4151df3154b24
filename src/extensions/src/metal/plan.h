// Which kernels could run a problem, from plain numbers alone, and what they are told beside the layout of
// the arrays.
#pragma once

#include <optional>
#include <vector>

#include "attention/problem.h"
#include "metal/launch.h"
#include "metal/tuning.h"

namespace tiny_llm_ext::metal {

struct Plan {
  bool readable;                // the kernel to read, which is told less
  FastAttentionArguments args;  // all strides 0
  Launch launch;
  std::optional<Launch> merge;  // behind several splits
  int64_t row_tile, key_tile;

  int64_t splits() const { return merge ? split_count(args) : 1; }
  // Floats of the parts that are merged: of each row its output, and the maximum and sum of its weights.
  int64_t part_floats() const { return merge ? splits() * args.N * args.L * (int64_t{args.E} + 2) : 0; }
};

// Those that compute it, the best first; a single one where batch invariance is asked for. Empty if a size is
// beyond the kernels' numbers.
std::vector<Plan> make_plans(const Problem& problem, const Tuning& tuning);

}  // namespace tiny_llm_ext::metal
