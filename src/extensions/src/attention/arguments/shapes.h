// The shape rules of attention, for calls and for compiled graphs with new shapes.
#pragma once

#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// By the rules of NumPy.
bool broadcasts_to(const mx::Shape& shape, const mx::Shape& target);

// The sizes B..., Hq, Hkv, L, S, E and V of the inputs. Throws an ArgumentError for shapes that do not match.
Dims check_shapes(const char* function, const AttentionInputs& inputs);

}  // namespace tiny_llm_ext
