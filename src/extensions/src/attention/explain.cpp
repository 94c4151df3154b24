// The fields of an explanation that all back ends share, and the explanations of graphs of MLX operations.
#include "attention/explain.h"

#include <utility>

#include "attention/backends.h"
#include "attention/support.h"
#include "attention/transforms/gradient.h"
#include "core/saturating.h"

namespace tiny_llm_ext {
namespace {

// Estimates of bytes are doubles, which saturate too.
double query_rows(const Problem& p) { return static_cast<double>(p.B) * p.Hq * p.L; }
double key_rows(const Problem& p) { return static_cast<double>(p.B) * p.Hkv * p.S; }

int64_t to_bytes(double floats) {
  double bytes = sizeof(float) * floats;
  return bytes < static_cast<double>(kMaxCount) ? static_cast<int64_t>(bytes) : kMaxCount;
}

// The peak memory of the reference graph without inputs and outputs: score matrices and float32 copies of the
// inputs. The factors are measured upper bounds.
int64_t reference_forward_bytes(const Problem& p) {
  double rows = query_rows(p), keys = key_rows(p);
  return to_bytes(4 * rows * p.S + rows * (p.E + 2 * p.V + 4) + keys * (p.E + p.V));
}

// Each query head has its own gradients of key and value until they are summed.
int64_t reference_backward_bytes(const Problem& p) {
  double rows = query_rows(p), keys = key_rows(p);
  return to_bytes(8 * rows * p.S + 2 * rows * (p.E + 2 * p.V + 4) + (3 + p.gqa_heads()) * keys * (p.E + p.V));
}

// The fields that do not depend on the path.
Explanation explain_gradient(const Problem& problem) {
  Explanation e = {};
  const int64_t queries = saturating_product({problem.B, problem.Hq, problem.L});
  const int64_t keys = saturating_product({problem.B, problem.Hkv, problem.S});
  const int64_t inputs_and_output =
      saturating_product({saturating_sum(queries, keys), problem.E + problem.V, problem.element_bytes()});
  e.saved_bytes = saturating_sum(inputs_and_output, saturating_product({queries, sizeof(float)}));
  e.workspace_bytes_backward = reference_backward_bytes(problem);
  e.backward_path = kReferencePath;
  e.backward_schedule = "dense";
  e.deterministic = true;
  return e;
}

}  // namespace

Explanation explain(const Problem& problem) {
  Verdict verdict = fused_kernel(problem);
  if (!verdict.ok) return explain_reference(problem, {verdict.reason});
  Explanation e = explain_gradient(problem);
  if (fused_gradient(problem).ok) {
    e.backward_path = kBackwardPath;
    // D of each row, and the copies of inputs whose strides the kernels do not read.
    e.workspace_bytes_backward = saturating_sum(
        saturating_product({problem.B, problem.Hq, problem.L, sizeof(float)}), problem.copied_bytes);
  }
  e.fused = true;
  e.mask_read = problem.mask == MaskKind::none ? "none" : problem.mask_broadcast ? "broadcast" : "tile";
  e.copies_bytes = problem.copied_bytes;
  if (problem.backend == Backend::cpu) {
    cpu::explain(problem, e);
  } else {
    gpu::explain(problem, e);
  }
  return e;
}

Explanation explain_reference(const Problem& problem, std::vector<std::string> reasons) {
  Explanation e = explain_gradient(problem);
  e.path = kReferencePath;
  e.reasons = std::move(reasons);
  e.schedule = "dense";
  e.tile_rows = problem.L;
  e.tile_keys = problem.S;
  e.splits = 1;
  e.tiles_visited = e.tiles_total = saturating_product({problem.B, problem.Hq});
  e.mask_read = problem.mask == MaskKind::none ? "none" : "tile";
  e.workspace_bytes = reference_forward_bytes(problem);
  e.math = "ieee-f32";
  return e;
}

// MLX chooses among kernels of its own; the bytes are an upper bound.
Explanation explain_mlx(const Problem& problem, std::vector<std::string> reasons) {
  Explanation e = explain_reference(problem, std::move(reasons));
  e.path = e.backward_path = kMlxPath;
  e.schedule = e.backward_schedule = e.math = "mlx";
  return e;
}

}  // namespace tiny_llm_ext
