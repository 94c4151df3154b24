// Which problems have a fused kernel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace tiny_llm_ext {

struct Verdict {
  bool ok;
  std::string reason;  // why not; empty if ok
};

// Whether fused kernels run a pass of the problem: `ok` routes a call, `reason` is the text of errors. The
// passes are those of support.def.
Verdict fused_kernel(const Problem& problem, std::string_view pass = "forward");

// One row of support.def.
struct Support {
  const char* backend;
  const char* pass;
  const char* dtype;
  int head_size_min, head_size_max;
};

const std::vector<Support>& support();

}  // namespace tiny_llm_ext
