// MLX's attention operation, for a GPU without a kernel of ours.
#pragma once

#include "attention/support.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Whether MLX's operation computes the same.
Verdict mlx_computes(const AttentionInputs& inputs, const AttentionParams& params, bool return_lse);

// The output of a call that it computes, with derivatives by MLX. The sinks have the dtype in which they were
// given.
mx::array mlx_graph(const AttentionInputs& inputs, const AttentionParams& params, mx::Stream stream);

}  // namespace tiny_llm_ext
