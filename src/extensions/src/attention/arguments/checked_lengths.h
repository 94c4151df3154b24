// Lengths for the reference graph, checked like those of the fused kernels.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The same inputs. A length out of range is an error of `function`: now if all lengths are evaluated, else at
// evaluation.
AttentionInputs with_checked_lengths(const char* function, AttentionInputs inputs, mx::Stream stream);

}  // namespace tiny_llm_ext
