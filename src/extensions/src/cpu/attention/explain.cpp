// What the CPU back end would do with a problem.
#include <algorithm>

#include "attention/backends.h"
#include "attention/tiles.h"
#include "core/divide_up.h"
#include "core/saturating.h"
#include "cpu/attention/backward/backward_plan.h"
#include "cpu/attention/plan.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {

void explain(const Problem& problem, Explanation& e) {
  Plan plan = make_plan(problem);
  const AttentionKernels& kernels = problem.kernels->attention[static_cast<int>(problem.dtype)];
  e.path = path_of(plan.schedule);
  if (e.backward_path == kBackwardPath) e.backward_schedule = name_of(make_backward_plan(problem).schedule);
  e.schedule = name_of(plan.schedule);
  e.tile_rows = kernels.forward.row_tile;
  e.tile_keys = kernels.forward.key_tile;
  e.splits = plan.splits;
  TileCounts counts = count_tiles(problem, problem.Hkv, e.tile_rows, e.tile_keys);
  e.tiles_visited = counts.visited;
  e.tiles_total = counts.total;
  e.workspace_bytes =
      saturating_sum(saturating_product({plan.partial_floats, sizeof(float)}), problem.copied_bytes);
  if (plan.schedule == Schedule::v1) {
    const auto state = static_cast<int64_t>(
        kernels.keys_outside_scratch_bytes(static_cast<int32_t>(problem.E), plan.task_rows));
    const int64_t at_once = std::min<int64_t>(problem.threads.of(plan.single_positions), plan.task_count);
    e.workspace_bytes = saturating_sum(e.workspace_bytes, saturating_product({at_once, state + kCacheLine}));
  }
  e.math = kernels.bf16_products ? "bf16" : "ieee-f32";
  e.batch_invariant = true;
}

}  // namespace tiny_llm_ext::cpu
