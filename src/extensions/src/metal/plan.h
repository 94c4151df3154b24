// The kernels that can run a problem, from its sizes and options alone, with their arguments except strides.
#pragma once

#include <optional>
#include <vector>

#include "attention/problem.h"
#include "metal/launch.h"
#include "metal/tuning.h"

namespace tiny_llm_ext::metal {

struct Plan {
  bool readable;                // the readable kernel, whose arguments are AttentionArguments
  FastAttentionArguments args;  // all strides 0
  Launch launch;
  std::optional<Launch> merge;  // after several splits
  int64_t row_tile, key_tile;

  int64_t splits() const { return merge ? split_count(args) : 1; }
  // Floats of the parts to merge: for each row its output, and the maximum and sum of its weights.
  int64_t part_floats() const { return merge ? splits() * args.N * args.L * (int64_t{args.E} + 2) : 0; }
};

// The possible plans, the best first; with batch invariance only one. Empty if a size does not fit the
// kernels' integers.
std::vector<Plan> make_plans(const Problem& problem, const Tuning& tuning);

}  // namespace tiny_llm_ext::metal
