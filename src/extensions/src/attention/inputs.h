// From the arrays of a call to the inputs of the primitives and back, and to a Problem.
#pragma once

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

std::vector<mx::array> pack(const AttentionInputs& inputs);
AttentionInputs unpack(const std::vector<mx::array>& arrays, const AttentionParams& params);

// The name of input n of the primitive.
const char* input_name(int n, const AttentionParams& params);

// The inputs of PagedAttention by name.
struct PagedInputs {
  PagedInputs(const std::vector<mx::array>& arrays, const PagedParams& params);

  // The slots of the pages in a row of the block table.
  int64_t slots_per_sequence() const { return int64_t{block_table.shape(1)} * attention.key.shape(2); }

  AttentionInputs attention;  // key and value are the pages
  mx::array block_table, context_lens;
};

// Arrays that are not evaluated yet have no layout; they count as dense.
Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device);

}  // namespace tiny_llm_ext
