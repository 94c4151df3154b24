// From the arrays of a call to the inputs of the primitive and back, and to a Problem.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

std::vector<mx::array> pack(const AttentionInputs& inputs);
AttentionInputs unpack(const std::vector<mx::array>& arrays, const AttentionParams& params);

// The name of input n of the primitive.
const char* input_name(int n, const AttentionParams& params);

// Arrays that are not evaluated yet have no layout; they count as dense.
Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device);

}  // namespace tiny_llm_ext
