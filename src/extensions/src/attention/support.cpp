// Routing, from the rows of support.def.
#include "attention/support.h"

#include <string_view>

#include "attention/backends.h"
#include "core/gpu.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kElementNames[kElements] = {"f32", "f16", "bf16"};

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

Verdict fused_kernel(const Problem& problem, std::string_view pass) {
  if (problem.V != problem.E) {
    return {false, "value has head size " + std::to_string(problem.V) + ", query and key have " +
                       std::to_string(problem.E)};
  }
  if (problem.packed && problem.backend == Backend::gpu)
    return {false, "packed sequences have kernels for the CPU only"};
  const char* backend = problem.backend == Backend::cpu ? "cpu" : gpu::name();
  const char* dtype = kElementNames[static_cast<int>(problem.dtype)];
  std::string kernel = std::string(backend) + " kernel for " + dtype;
  if (pass != "forward") kernel += ", " + std::string(pass);
  std::string reason = "this build has no " + kernel;
  for (const Support& row : support()) {
    if (std::string_view(row.backend) != backend || std::string_view(row.pass) != pass ||
        std::string_view(row.dtype) != dtype) {
      continue;
    }
    if (row.head_size_min <= problem.E && problem.E <= row.head_size_max) {
      return problem.backend == Backend::cpu ? Verdict{true, ""} : gpu::accepts(problem);
    }
    reason = "head size " + std::to_string(problem.E) + " is outside " + std::to_string(row.head_size_min) +
             " to " + std::to_string(row.head_size_max) + " of the " + kernel;
  }
  return {false, reason};
}

}  // namespace tiny_llm_ext
