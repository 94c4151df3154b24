// Fused attention where its inputs lie, for the evaluations that need it.
#pragma once

#include "attention/problem.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext::cpu {

// Runs on the calling thread and those of the pool. The outputs have memory; the last axis of `o` is dense,
// its other strides are free, and `lse` is contiguous.
void attend(const AttentionInputs& inputs, const Problem& problem, mx::array& o, mx::array& lse);

}  // namespace tiny_llm_ext::cpu
