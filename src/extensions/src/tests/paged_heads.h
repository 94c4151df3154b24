// A task of several KV heads whose keys and values lie in pages, for the tests of attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "case_memory.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {

// Keys and values in pages of several KV heads, [page][head][slot] or [page][slot][head]. All heads have the
// keys of the case; the values of head h are 2^(h % 3) times its values. The heads of the case's group are
// divided among them. Slots without a key are NaN. The order of the pages is 0, 2, 1, 3, 4, 6, 5, 7 and so
// on.
class PagedHeads {
 public:
  PagedHeads(const AttentionCase& c, const cpu::ForwardTask& dense, int heads, int64_t page_size,
             bool slots_outside)
      : ids_((c.n_k + page_size - 1) / page_size),
        k_(ids_.size() * page_size * heads * c.E * bytes_of(c.element), c.guard),
        v_(ids_.size() * page_size * heads * c.E * bytes_of(c.element), c.guard),
        task_(dense) {
    const int64_t count = static_cast<int64_t>(ids_.size()), stride = page_size * heads * c.E;
    const int64_t row = slots_outside ? heads * c.E : c.E, head = slots_outside ? c.E : page_size * c.E;
    std::iota(ids_.begin(), ids_.end(), 0);
    for (int64_t i = 1; i + 1 < count; i += 4) std::swap(ids_[i], ids_[i + 1]);
    for (int64_t t = 0; t < c.n_k; ++t) {
      for (int h = 0; h < heads; ++h) {
        for (int e = 0; e < c.E; ++e) {
          const int64_t index = ids_[t / page_size] * stride + t % page_size * row + h * head + e;
          put(k_, c.element, index, c.k[t * c.E + e]);
          put(v_, c.element, index, std::ldexp(c.v[t * c.E + e], h % 3));
        }
      }
    }
    task_.k = k_.as<void>(), task_.v = v_.as<void>();
    task_.k_row_stride = task_.v_row_stride = row;
    task_.k_head_stride = task_.v_head_stride = head;
    task_.pages = {ids_.data(), count, page_size, stride, stride};
    task_.gqa_heads = c.gqa_heads / heads;
    task_.kv_heads = heads;
    task_.row_end = c.L * task_.gqa_heads;
    // The task after it, which is only prefetched.
    task_.next_k = task_.k, task_.next_v = task_.v, task_.next_ids = ids_.data(), task_.next_end = c.n_k;
  }

  const cpu::ForwardTask& task() const { return task_; }

  // As PagedKeys::evict().
  void evict() {
    for (size_t i = 0; i < ids_.size(); i += 3) ids_[i] = -1;
  }

 private:
  std::vector<int32_t> ids_;
  Guarded k_, v_;
  cpu::ForwardTask task_;
};

}  // namespace tiny_llm_ext::tests
