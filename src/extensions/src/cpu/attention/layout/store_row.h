// Results in float32, as the rows of an output.
#pragma once

#include <cstddef>
#include <vector>

#include "core/element.h"

namespace tiny_llm_ext::cpu {

// Writes the elements of `row`, rounded to `type`, side by side.
void store_row(const std::vector<float>& row, Element type, std::byte* to);

}  // namespace tiny_llm_ext::cpu
