// Where a tile of keys and values lies: in one block of memory, in one page, or spread over pages.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Rows of a tile, from its first key on: as they lie in the inputs, in elements, or as a format prepared them
// for its own products, in the unit of its choice (floats, or bytes for AMX).
struct Rows {
  const void* data;
  int64_t stride;
  int64_t ahead = 0;  // to the next key tile, where that is worth a prefetch
};

struct KeyRows {
  Rows k, v;
};

constexpr int64_t gathered_width(int E) { return (E + kLanes - 1) / kLanes * kLanes; }

// One of the arrays whose pages hold the rows of a sequence, at slot 0 of page 0 of a KV head.
template <class T>
struct PagedRows {
  const PageTable& table;
  const T* base;
  int64_t page_stride, row_stride;

  // Null where the page is absent.
  const T* row(int64_t key) const {
    int64_t page = table.ids[key / table.size];
    bool present = 0 <= page && page < table.count;
    return present ? base + page * page_stride + key % table.size * row_stride : nullptr;
  }

  // The rows of `count` keys in order, copied page by page. Those of an absent page are zero: the mask hides
  // its keys, and a hidden key has the weight 0, but 0 * NaN would not be 0.
  void gather(int64_t begin, int count, int E, T* out) const {
    const int64_t width = gathered_width(E);
    for (int key = 0; key < count;) {
      int64_t left = table.size - (begin + key) % table.size;
      int run = left < count - key ? (int)left : count - key;
      const T* from = row(begin + key);
      if (!from)
        memset(out, 0, run * width * sizeof(T));
      else if (row_stride == E && width == E)
        memcpy(out, from, run * width * sizeof(T));
      else
        for (int r = 0; r < run; r++) memcpy(out + r * width, from + r * row_stride, E * sizeof(T));
      key += run;
      out += run * width;
    }
  }

  // In place where one page holds all of them, else gathered in `memory`.
  Rows find(int64_t begin, int count, int64_t next, int E, T* memory) const {
    const T* first = row(begin);
    if (first && begin % table.size + count <= table.size) {
      const T* following = next < 0 ? nullptr : row(next);
      return {first, row_stride, following ? following - first : 0};
    }
    gather(begin, count, E, memory);
    return {memory, gathered_width(E), 0};
  }
};

// The rows of `count` keys from logical key `begin` on; `memory` holds two tiles that may have to be
// gathered.
template <class T>
static KeyRows find_rows(const ForwardTask& task, int64_t begin, int count, int key_tile, float* memory) {
  const T *k = (const T*)task.k, *v = (const T*)task.v;
  const int64_t left = key_tile - begin % key_tile;  // to the next tile
  if (!task.pages.ids)
    return {{k + begin * task.k_row_stride, task.k_row_stride, left * task.k_row_stride},
            {v + begin * task.v_row_stride, task.v_row_stride, left * task.v_row_stride}};
  const int64_t next = begin + left < task.n_k ? begin + left : -1;
  const PagedRows<T> keys = {task.pages, k, task.pages.k_stride, task.k_row_stride};
  const PagedRows<T> values = {task.pages, v, task.pages.v_stride, task.v_row_stride};
  T* gathered = (T*)memory;
  return {keys.find(begin, count, next, task.E, gathered),
          values.find(begin, count, next, task.E, gathered + key_tile * gathered_width(task.E))};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
