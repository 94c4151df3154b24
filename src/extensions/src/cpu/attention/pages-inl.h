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
  // The address of each row instead, where they lie in several pages; null if data and stride say it.
  const uint16_t* const* rows = nullptr;
};

struct KeyRows {
  SourceRows k, v;
  const uint8_t* absent = nullptr;  // [keys] whether a key is in an absent page; null if none is
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
    const int64_t page = page_of(table, key);
    return page < 0 ? nullptr : base + page * page_stride + key % table.size * row_stride;
  }

  // Copies the rows of `count` keys, page by page. Rows of an absent page become 0: its keys have the
  // probability 0, but 0 * NaN would be NaN.
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

  // The address of each row; `hidden` for those of an absent page.
  void point(int64_t begin, int count, const T* hidden, const T** rows) const {
    for (int key = 0; key < count;) {
      const int64_t left = table.size - (begin + key) % table.size;
      const int run = left < count - key ? (int)left : count - key;
      const T* from = row(begin + key);
      for (int r = 0; r < run; r++, key++) rows[key] = from ? from + r * row_stride : hidden;
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

// Marks the keys of absent pages in `absent`; false if all pages are there.
static bool mark_absent(const PageTable& table, int64_t begin, int count, uint8_t* absent) {
  bool any = false;
  for (int key = 0; key < count;) {
    const int64_t left = table.size - (begin + key) % table.size;
    const int run = left < count - key ? (int)left : count - key;
    const bool is_absent = page_of(table, begin + key) < 0;
    memset(absent + key, is_absent, run);
    any = any || is_absent;
    key += run;
  }
  return any;
}

// Floats of memory that find_rows needs for a tile: to gather keys and values, and to mark absent pages.
constexpr size_t gathered_floats(int key_tile, int E) {
  return (size_t)2 * key_tile * padded(E) + key_tile / sizeof(float);
}

// The rows of `count` keys from logical key `begin` on.
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
  auto* absent = (uint8_t*)(memory + 2 * key_tile * padded(task.E));
  return {keys.find(begin, count, next, task.E, gathered),
          values.find(begin, count, next, task.E, gathered + key_tile * padded(task.E)),
          mark_absent(task.pages, begin, count, absent) ? absent : nullptr};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
