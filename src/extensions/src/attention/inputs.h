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
  explicit PagedInputs(const std::vector<mx::array>& arrays)
      : query(arrays[0]),
        key_pages(arrays[1]),
        value_pages(arrays[2]),
        block_table(arrays[3]),
        context_lens(arrays[4]) {}

  // The slots of the pages in a row of the block table.
  int64_t slots_per_sequence() const { return int64_t{block_table.shape(1)} * key_pages.shape(2); }

  const mx::array &query, &key_pages, &value_pages, &block_table, &context_lens;
};

// Arrays that are not evaluated yet have no layout; they count as dense.
Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device);

}  // namespace tiny_llm_ext
