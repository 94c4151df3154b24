// The gradient of an attention case in double precision.
#pragma once

#include <vector>

#include "attention_case.h"

namespace tiny_llm_ext::tests {

// An attention case with cotangents, and what its forward pass stored.
struct BackwardCase : AttentionCase {
  std::vector<double> o, lse;  // as stored: [gqa_heads][L][E] in the element type, [gqa_heads][L] in float32
  std::vector<double> d_o, d_lse;  // likewise
  // Rows that take no part hold NaN in q, o, d_o and d_lse.
  static BackwardCase numbered(int number);

  bool takes_part(int64_t row) const;  // of [gqa_heads][L]
};

// Gradients by definition, and the largest errors of a correct kernel.
struct Gradient {
  std::vector<double> value, error;
};
struct ExpectedGradients {
  Gradient dq, dk, dv;  // [gqa_heads][L][E], [n_k][E] twice
  std::vector<double> delta, delta_error;
};
// `rounds_factors`: whether the kernel rounds P and dS to bfloat16.
ExpectedGradients expected_gradients(const BackwardCase& problem, bool rounds_factors);

}  // namespace tiny_llm_ext::tests
