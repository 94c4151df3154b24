// Outputs that take over the memory of an input which is no longer needed.
#pragma once

#include <initializer_list>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Gives `out` the memory of the first input that has its type and layout and that nothing else refers to, or
// new memory. Returns whether it is that of an input.
bool reuse_or_allocate(mlx::core::array& out, std::initializer_list<const mlx::core::array*> inputs);

// For operations with several outputs, before `reuse_or_allocate`: MLX stores the inputs in every output, so
// no input would be free to reuse. Clears the lists of all outputs but the one that is evaluated.
void drop_sibling_references(const std::vector<mlx::core::array>& inputs,
                             std::vector<mlx::core::array>& outputs);

}  // namespace tiny_llm_ext::cpu
