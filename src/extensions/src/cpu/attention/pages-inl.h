// Where a tile of keys and values lies: in one block of memory, in one page, or across pages.
#pragma once

#include "core/divide_up.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Rows of a tile in the inputs, from its first key on; the stride counts elements.
struct SourceRows {
  const void* data;
  int64_t stride;
  int64_t prefetch_distance = 0;  // to the next key tile, or 0
};

struct KeyRows {
  SourceRows k, v;
};

constexpr int padded(int width) { return (int)round_up(width, kLanes); }

// Key or value pages of one KV head; `base` is slot 0 of page 0.
template <class T>
struct PagedRows {
  const PageTable& table;
  const T* base;
  int64_t page_stride, row_stride;

  // Null if the page is absent.
  const T* row(int64_t key) const {
    int64_t page = table.ids[key / table.size];
    bool present = 0 <= page && page < table.count;
    return present ? base + page * page_stride + key % table.size * row_stride : nullptr;
  }

  // Copies the rows of `count` keys, page by page. Rows of an absent page become 0: the mask gives its keys
  // the probability 0, but 0 * NaN would be NaN.
  void gather(int64_t begin, int count, int E, T* out) const {
    const int64_t width = padded(E);
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

  // In place if one page holds all rows, else gathered in `memory`. `next` is the first key of the next tile,
  // or negative.
  SourceRows find(int64_t begin, int count, int64_t next, int E, T* memory) const {
    const T* first = row(begin);
    if (first && begin % table.size + count <= table.size) {
      const T* following = next < 0 ? nullptr : row(next);
      return {first, row_stride, following ? following - first : 0};
    }
    gather(begin, count, E, memory);
    return {memory, padded(E), 0};
  }
};

// The rows of `count` keys from logical key `begin` on. `memory` has room to gather two tiles.
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
          values.find(begin, count, next, task.E, gathered + key_tile * padded(task.E))};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
