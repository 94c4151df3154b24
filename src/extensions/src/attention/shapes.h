// The shape rules of attention: checked at a call, and again when a compiled graph gets other arrays.
#pragma once

#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The sizes of the inputs, by the names B..., Hq, Hkv, L, S, E and V. Throws an ArgumentError for shapes
// that do not fit together.
Dims check_shapes(const char* function, const AttentionInputs& inputs);

}  // namespace tiny_llm_ext
