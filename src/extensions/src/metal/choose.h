// The kernel that runs a problem on the GPU that is there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metal/plan.h"

namespace tiny_llm_ext::metal {

struct Choice {
  std::optional<Plan> plan;          // none: no kernel runs here
  std::vector<std::string> refused;  // why not those that would have been better
};

Choice choose(const Problem& problem);

}  // namespace tiny_llm_ext::metal
