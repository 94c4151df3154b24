// Tries the plans in order on the device, and answers the router.
#include "metal/choose.h"

#include "attention/backends.h"
#include "attention/support.h"
#include "attention/tiles.h"
#include "core/gpu.h"
#include "metal/device.h"
#include "metal/library.h"

namespace tiny_llm_ext {
namespace metal {

Choice choose(const Problem& problem) {
  Choice choice;
  for (Plan& plan : make_plans(problem, tuning())) {
    std::string obstacle = obstacle_to(plan.launch);
    if (obstacle.empty() && plan.merge) obstacle = obstacle_to(*plan.merge);
    if (obstacle.empty()) {
      choice.plan = std::move(plan);
      return choice;
    }
    choice.refused.push_back(std::move(obstacle));
  }
  if (choice.refused.empty())
    choice.refused.push_back("a size does not fit the integers of the Metal kernels");
  return choice;
}

}  // namespace metal

bool gpu::exists() { return true; }

void gpu::load_library(const std::string& folder) { metal::set_package_folder(folder); }

const char* gpu::name() { return "metal"; }

Verdict gpu::accepts(const Problem& problem) {
  metal::Choice choice = metal::choose(problem);
  if (choice.plan) return {true, ""};
  std::string reasons;
  for (const std::string& reason : choice.refused) reasons += (reasons.empty() ? "" : "; ") + reason;
  return {false, reasons};
}

void gpu::explain(const Problem& problem, Explanation& e) {
  metal::Choice choice = metal::choose(problem);
  const metal::Plan& plan = *choice.plan;
  e.path = "metal." + plan.launch.kernel;
  e.reasons = choice.refused;
  e.schedule = plan.merge ? "split" : "v2";
  e.tile_rows = plan.row_tile;
  e.tile_keys = plan.key_tile;
  e.splits = plan.splits();
  TileCounts counts = count_tiles(problem, problem.Hq, e.tile_rows, e.tile_keys);
  e.tiles_visited = counts.visited;
  e.tiles_total = counts.total;
  e.copies_bytes = plan.readable ? problem.readable_copied_bytes : problem.copied_bytes;
  e.workspace_bytes = plan.part_floats() * sizeof(float) + e.copies_bytes;
  e.math = "ieee-f32";
  e.batch_invariant = problem.batch_invariant;
}

}  // namespace tiny_llm_ext
