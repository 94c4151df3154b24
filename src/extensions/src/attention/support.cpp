// Routing and its explanation, from one list of what has a kernel.
#include <string_view>

#include "attention/backends.h"
#include "attention/problem.h"
#include "core/gpu.h"
#include "core/saturating.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kElementNames[kElements] = {"f32", "f16", "bf16"};

// Estimates of bytes are counted in double; they, too, stop at the largest integer.
double query_rows(const Problem& p) { return static_cast<double>(p.B) * p.Hq * p.L; }
double key_rows(const Problem& p) { return static_cast<double>(p.B) * p.Hkv * p.S; }

int64_t to_bytes(double floats) {
  double bytes = sizeof(float) * floats;
  return bytes < static_cast<double>(kMostCounted) ? static_cast<int64_t>(bytes) : kMostCounted;
}

// What the reference graph holds at its peak, beside its inputs and outputs, in float32: score matrices, and
// widened copies of the arrays along the rows and along the keys. The counts are measured upper bounds.
int64_t reference_forward_bytes(const Problem& p) {
  double rows = query_rows(p), keys = key_rows(p);
  return to_bytes(4 * rows * p.S + rows * (p.E + 2 * p.V + 4) + keys * (p.E + p.V));
}

// The gradients of key and value exist once for each query head before they are added up.
int64_t reference_backward_bytes(const Problem& p) {
  double rows = query_rows(p), keys = key_rows(p);
  return to_bytes(8 * rows * p.S + 2 * rows * (p.E + 2 * p.V + 4) + (3 + p.group()) * keys * (p.E + p.V));
}

// What does not depend on the path.
Explanation explain_gradient(const Problem& problem) {
  Explanation e = {};
  const int64_t queries = saturating_product({problem.B, problem.Hq, problem.L});
  const int64_t keys = saturating_product({problem.B, problem.Hkv, problem.S});
  const int64_t inputs_and_output =
      saturating_product({saturating_sum(queries, keys), problem.E + problem.V, problem.element_bytes()});
  e.saved_bytes = saturating_sum(inputs_and_output, saturating_product({queries, sizeof(float)}));
  e.workspace_bytes_backward = reference_backward_bytes(problem);
  e.backward_path = "reference";
  e.deterministic = true;
  return e;
}

}  // namespace

const std::vector<Support>& support() {
  static const std::vector<Support> rows = {
#define TINY_LLM_SUPPORT(backend, pass, dtype, smallest, largest) \
  {#backend, #pass, #dtype, smallest, largest},
#include "attention/support.def"
#undef TINY_LLM_SUPPORT
  };
  return rows;
}

Verdict fused_kernel(const Problem& problem) {
  if (problem.V != problem.E) {
    return {false, "value has head size " + std::to_string(problem.V) + ", query and key have " +
                       std::to_string(problem.E)};
  }
  const char* backend = problem.backend == Backend::cpu ? "cpu" : gpu::name();
  const char* dtype = kElementNames[static_cast<int>(problem.dtype)];
  std::string reason = std::string("this build has no ") + backend + " kernel for " + dtype;
  for (const Support& row : support()) {
    if (std::string_view(row.backend) != backend || std::string_view(row.pass) != "forward" ||
        std::string_view(row.dtype) != dtype) {
      continue;
    }
    if (row.head_size_min <= problem.E && problem.E <= row.head_size_max) {
      return problem.backend == Backend::cpu ? Verdict{true, ""} : gpu::accepts(problem);
    }
    reason = "head size " + std::to_string(problem.E) + " is outside " + std::to_string(row.head_size_min) +
             " to " + std::to_string(row.head_size_max) + " of the " + backend + " kernel for " + dtype;
  }
  return {false, reason};
}

Explanation explain(const Problem& problem) {
  Verdict verdict = fused_kernel(problem);
  if (!verdict.ok) return explain_reference(problem, verdict.reason);
  Explanation e = explain_gradient(problem);
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

Explanation explain_reference(const Problem& problem, const std::string& reason) {
  Explanation e = explain_gradient(problem);
  e.path = "reference";
  e.reasons.push_back(reason);
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

}  // namespace tiny_llm_ext
