// What happens to a call without a kernel of ours.
#pragma once

#include <string>
#include <vector>

#include "attention/explain.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Why a call with own_kernels = false has no kernel of ours.
inline constexpr const char* kExcluded = "the call excludes our kernels";

// By `on_fallback`, before the reference graph is taken: throws NotImplemented, warns once for each reason,
// or does nothing. The graph is not batch invariant, so a call that asks for that throws.
void report_fallback(const char* function, const AttentionOptions& options,
                     const std::vector<std::string>& reasons);

// Adds to the explanation of the reference graph that the call throws.
void explain_batch_invariance(const AttentionOptions& options, Explanation& explanation);

}  // namespace tiny_llm_ext
