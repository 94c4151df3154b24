// Which tokens lie in which page, and the ordered sums.
#include "cpu/attention/backward/page_gradients.h"

#include <algorithm>
#include <cstring>

#include "attention/tiles.h"
#include "core/bytes.h"
#include "cpu/attention/layout/store_row.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

PageGradients::PageGradients(const Problem& problem, const PageTables& pages, const HeadRows& k,
                             const HeadRows& v)
    : problem_(problem) {
  for (const Sequence& sequence : problem.sequences) {
    const PageTable table = pages.table(sequence, problem.left, k, v);
    const KeyRange seen =
        visible_keys(0, sequence.n_q - 1, sequence.n_q, sequence.n_k, problem.left, problem.right);
    for (int64_t page = seen.begin / table.size; page * table.size < seen.end; page++) {
      const int64_t first_token = page * table.size, id = page_of(table, first_token);
      if (id < 0) continue;
      uses_.push_back({.page = id,
                       .begin = std::max<int64_t>(seen.begin - first_token, 0),
                       .end = std::min(seen.end - first_token, table.size),
                       .first_row = first_row_.back() + first_token});
    }
    first_row_.push_back(first_row_.back() + sequence.n_k);
  }
  std::stable_sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) { return a.page < b.page; });
  const int64_t bytes = bytes_of({2, problem.Hkv, first_row_.back(), problem.E, sizeof(float)});
  allocation_.emplace(allocate(bytes));
  memory_ = static_cast<float*>(allocation_->buffer().raw_ptr());
}

HeadMatrixOut PageGradients::rows(int gradient, const Sequence& sequence, int64_t kv_head) const {
  return {row(gradient, kv_head, first_row_[sequence.index]), 0, problem_.E};
}

void PageGradients::sum_into(int gradient, mx::array& pages, int threads) const {
  const int64_t page_size = pages.shape(2);
  const int64_t bytes = page_size * problem_.E * problem_.element_bytes();
  parallel_for(pages.shape(0) * problem_.Hkv, threads, [&](int64_t n) {
    sum_page(gradient, n / problem_.Hkv, n % problem_.Hkv, page_size, pages.data<std::byte>() + n * bytes);
  });
}

void PageGradients::sum_page(int gradient, int64_t page, int64_t kv_head, int64_t page_size,
                             std::byte* to) const {
  const int64_t E = problem_.E, row_bytes = E * problem_.element_bytes();
  std::memset(to, 0, page_size * row_bytes);
  const auto first = std::lower_bound(uses_.begin(), uses_.end(), page,
                                      [](const Use& use, int64_t page) { return use.page < page; });
  std::vector<float> sum(E);
  for (int64_t slot = 0; slot < page_size && first != uses_.end(); slot++) {
    bool used = false;
    for (auto use = first; use != uses_.end() && use->page == page; ++use) {
      if (slot < use->begin || slot >= use->end) continue;
      const float* from = row(gradient, kv_head, use->first_row + slot);
      for (int64_t e = 0; e < E; e++) sum[e] = used ? sum[e] + from[e] : from[e];
      used = true;
    }
    if (used) store_row(sum, problem_.dtype, to + slot * row_bytes);
  }
}

}  // namespace tiny_llm_ext::cpu
