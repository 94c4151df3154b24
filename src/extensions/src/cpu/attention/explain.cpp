// What the CPU back end would do with a problem.
#include "attention/backends.h"
#include "attention/tiles.h"
#include "core/saturating.h"
#include "cpu/attention/plan.h"
#include "cpu/kernels/kernels.h"

namespace tiny_llm_ext::cpu {

void explain(const Problem& problem, Explanation& e) {
  Plan plan = make_plan(problem);
  const int element = static_cast<int>(problem.dtype);
  e.path = plan.split ? "cpu.split" : "cpu.tiled";
  e.schedule = plan.split ? "split" : "v2";
  e.tile_rows = problem.kernels->row_tile[element];
  e.tile_keys = problem.kernels->key_tile[element];
  e.splits = plan.splits;
  TileCounts counts = count_tiles(problem, problem.Hkv, e.tile_rows, e.tile_keys);
  e.tiles_visited = counts.visited;
  e.tiles_total = counts.total;
  e.workspace_bytes =
      saturating_sum(saturating_product({plan.partial_floats, sizeof(float)}), problem.copied_bytes);
  e.math = problem.kernels->bf16_products[element] ? "bf16" : "ieee-f32";
  e.batch_invariant = true;
}

}  // namespace tiny_llm_ext::cpu
