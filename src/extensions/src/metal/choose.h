// Chooses the kernel for a problem on this machine's GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metal/plan.h"

namespace tiny_llm_ext::metal {

struct Choice {
  std::optional<Plan> plan;          // none: no kernel can run
  std::vector<std::string> refused;  // reasons against the kernels tried before it
};

Choice choose(const Problem& problem);

}  // namespace tiny_llm_ext::metal
