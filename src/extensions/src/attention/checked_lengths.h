// Lengths whose contents are checked when they are evaluated.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The same inputs. Throws for a length out of range, in the name of `function`: now if all are there, else
// when they are evaluated.
AttentionInputs with_checked_lengths(const char* function, AttentionInputs inputs, mx::Stream stream);

}  // namespace tiny_llm_ext
