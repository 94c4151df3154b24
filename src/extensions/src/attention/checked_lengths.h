// Lengths whose contents are checked when they are evaluated.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The same inputs; evaluating a length out of range throws, in the name of `function`.
AttentionInputs with_checked_lengths(const char* function, AttentionInputs inputs, mx::Stream stream);

}  // namespace tiny_llm_ext
