// Outputs that take over the memory of an input which is no longer needed.
#pragma once

#include <initializer_list>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Gives `out` the memory of the first input that has its type and layout and is used by nothing else, or new
// memory. Returns whether it is that of an input.
bool place_output(mlx::core::array& out, std::initializer_list<const mlx::core::array*> inputs);

// For operations with several outputs, before `place_output`: MLX keeps a list of the inputs for each output,
// so that every input looks as if something else used it. Only the list of the current evaluation stays.
void hold_inputs_once(const std::vector<mlx::core::array>& inputs, std::vector<mlx::core::array>& outputs);

}  // namespace tiny_llm_ext::cpu
