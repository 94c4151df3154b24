// dK and dV of pages: the sums over all sequences whose tokens lie in a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attention/problem.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {

// The kernels write a row in float32 for each token of each sequence, also where sequences share a page. Then
// each slot of a page gets the sum of the rows of its tokens, rounded once: in the order of the sequences, so
// that the bits do not depend on the number of threads. One row for each slot would need less memory where a
// prefix is shared, but a kernel that adds to it must wait for all sequences before its own: tasks of
// sequences with a shared page could no longer run in parallel.
class PageGradients {
 public:
  // `k` and `v` are the pages. Refers to `problem`, whose lifetime must be longer.
  PageGradients(const Problem& problem, const PageTables& pages, const HeadRows& k, const HeadRows& v);

  // The rows of a sequence from token 0 on, of one KV head; `gradient` is 0 for dK, 1 for dV.
  HeadMatrixOut rows(int gradient, const Sequence& sequence, int64_t kv_head) const;

  // Writes every slot of the pages (P, Hkv, page, E), with 0 where no query sees a token.
  void sum_into(int gradient, mlx::core::array& pages, int threads) const;

 private:
  // Tokens of one sequence in one page: slots begin .. end - 1.
  struct Use {
    int64_t page, begin, end;
    int64_t first_row;  // of the token in slot 0
  };

  float* row(int gradient, int64_t kv_head, int64_t row) const {
    return memory_ + ((gradient * problem_.Hkv + kv_head) * first_row_.back() + row) * problem_.E;
  }
  // Writes the slots of one page of one KV head.
  void sum_page(int gradient, int64_t page, int64_t kv_head, int64_t page_size, std::byte* to) const;

  const Problem& problem_;
  std::vector<int64_t> first_row_ = {0};  // of each sequence, then the number of rows
  std::vector<Use> uses_;                 // page by page, and those of a page in the order of the sequences
  std::optional<mlx::core::allocator::Data> allocation_;
  float* memory_ = nullptr;  // [gradient][KV head][row][E]
};

}  // namespace tiny_llm_ext::cpu
