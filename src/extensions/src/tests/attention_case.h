// A test case for attention kernels: dimensions, values, and the expected result in double precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/interface/kernels.h"
#include "guarded.h"

namespace tiny_llm_ext::tests {

enum class Poison { none, query, key, value };  // the array with one NaN, or infinite value

// One KV head and the query heads of its GQA group. Values are dense.
struct AttentionCase {
  Element element;
  int E, gqa_heads;
  int64_t L, n_q, n_k;  // rows from n_q on are padding
  int64_t left, right;
  float scale, softcap;
  MaskKind mask_kind;
  bool mask_per_head, mask_per_row, mask_per_key;  // broadcast along the others
  bool has_sinks;
  Poison poison;

  // The layout in memory: unused elements after each row, which axis is the outer one, the side of the guard
  // page.
  int64_t query_gap, key_gap;
  bool heads_outside, mask_keys_outside;
  Guard guard;

  std::vector<double> q;      // [gqa_heads][L][E]
  std::vector<double> k, v;   // [n_k][E]
  std::vector<double> mask;   // [gqa_heads][L][n_k], additive; -inf hides
  std::vector<double> sinks;  // [gqa_heads]; some are -inf, which is none

  // A case from its number: E and gqa_heads go through all their values, the rest is random.
  static AttentionCase numbered(int number);

  // Hides the keys of every third page, as PagedKeys::evict() does.
  void hide_pages(int64_t page_size);

  std::string name() const;
  bool visible(int64_t i, int64_t t) const;
};

// Attention by definition, and the largest error of a correct float32 kernel.
struct ExpectedAttention {
  std::vector<double> o, o_error;      // [gqa_heads][L][E]
  std::vector<double> lse, lse_error;  // [gqa_heads][L]
};
ExpectedAttention expected_attention(const AttentionCase& problem);

// The nearest number of the element type.
double rounded(Element element, double x);

}  // namespace tiny_llm_ext::tests
