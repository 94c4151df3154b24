// Where the keys and values of a tile of the backward passes lie: in one block of memory, or in pages. Both
// are read in place.
#pragma once

#include "cpu/attention/backward/tile-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The address of each row; zeros for a key in an absent page. No query sees the keys before the first page of
// the table, by their position: only those after it count as absent.
template <class T>
struct KeyRowAddresses {
  const T *k[kMaxTileRows], *v[kMaxTileRows];
  bool absent[kMaxTileRows];
  bool any_absent = false;

  KeyRowAddresses(const BackwardTask& task, int64_t begin, int count) {
    const PageTable& pages = task.pages;
    const auto point = [&](int key, int rows, int64_t page, int64_t slot) {
      const bool is_absent = page < 0 && (begin + key) / pages.size >= pages.first;
      any_absent |= is_absent;
      for (const int end = key + rows; key < end; key++, slot++) {
        absent[key] = is_absent;
        k[key] = page < 0 ? (const T*)kZeroRow
                          : (const T*)task.k.data + page * pages.k_stride + slot * task.k.row_stride;
        v[key] = page < 0 ? (const T*)kZeroRow
                          : (const T*)task.v.data + page * pages.v_stride + slot * task.v.row_stride;
      }
    };
    if (pages.ids)
      for_each_page(pages, begin, count, point);
    else
      point(0, count, 0, begin);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
