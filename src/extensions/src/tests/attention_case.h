// One attention problem for the kernels: its dimensions, its values in double, and the answer by definition.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "guarded.h"

namespace tiny_llm_ext::tests {

enum class Poison { none, query, key, value };  // one NaN that some row sees

// Query heads of one KV head. Values are held dense.
struct AttentionCase {
  Element element;
  int E, group;
  int64_t L, n_q, n_k;  // rows from n_q on are padding
  int64_t left, right;
  float scale, softcap;
  MaskKind mask_kind;
  bool mask_per_head, mask_per_row, mask_per_key;  // broadcast along the others
  bool has_sinks;
  Poison poison;

  // How the arrays lie in memory: unused elements behind each row, which axis is outside, where the guard
  // page is.
  int64_t query_gap, key_gap;
  bool heads_outside, mask_keys_outside;
  Guard guard;

  std::vector<double> q;      // [group][L][E]
  std::vector<double> k, v;   // [n_k][E]
  std::vector<double> mask;   // [group][L][n_k], what is added; -inf hides
  std::vector<double> sinks;  // [group]

  // Dimensions and values of the case with that number: E and group walk through their lists, the rest is
  // drawn.
  static AttentionCase numbered(int number);

  std::string name() const;
  bool visible(int64_t i, int64_t t) const;
};

// Softmax attention by definition. `error` is how far a correct float32 kernel may be from each value of o.
struct AttentionAnswer {
  std::vector<double> o, o_error;      // [group][L][E]
  std::vector<double> lse, lse_error;  // [group][L]
};
AttentionAnswer answer(const AttentionCase& problem);

// The nearest number of that type.
double rounded(Element element, double x);

}  // namespace tiny_llm_ext::tests
