// Checks of the options that dense, packed and paged attention share.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Whether keys after a row's position are hidden. Throws for a mask that is another string.
bool is_causal(const char* function, const AttentionOptions& options);

// The parameters of a call without its arrays. Throws for options out of range.
AttentionParams check_options(const char* function, const AttentionOptions& options, bool causal);

}  // namespace tiny_llm_ext
