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
  // The address of each row instead, where they lie in several pages, and those of the next tile to prefetch;
  // null if data and stride say it.
  const uint16_t* const* rows = nullptr;
  const uint16_t* const* next_rows = nullptr;
  int next_count = 0;

  // A row of 16-bit elements.
  template <bool kByAddress>
  inline __attribute__((always_inline)) const uint16_t* at(int row) const {
    return kByAddress ? rows[row] : (const uint16_t*)data + row * stride;
  }
};

struct KeyRows {
  SourceRows k, v;
  const uint8_t* absent = nullptr;  // [keys] whether a key is in an absent page; null if none is
};

constexpr int padded(int width) { return (int)round_up(width, kLanes); }

// The row of keys and values in absent pages.
alignas(64) static const uint16_t kAbsentRow[2 * kMaxHeadSize] = {};

// Memory to find the keys or the values of a tile that lies in several pages.
template <class T>
struct PageMemory {
  const T **rows, **next_rows;  // [key tile]
  T* gathered;                  // [key tile][padded(E)]

  PageMemory(float* memory, int key_tile)
      : rows((const T**)memory), next_rows(rows + key_tile), gathered((T*)(next_rows + key_tile)) {}
  static constexpr size_t floats(int key_tile, int E) {
    return 2 * key_tile * sizeof(T*) / sizeof(float) + (size_t)key_tile * padded(E);
  }
};

// Calls visit(key, count, page, slot) for the keys of each page, from logical key `begin` on: keys key ..
// key + count - 1 of the tile lie from `slot` on in `page`, which is -1 if it is absent.
template <class Visit>
VEC_FN void for_each_page(const PageTable& table, int64_t begin, int keys, Visit visit) {
  for (int key = 0; key < keys;) {
    const int64_t slot = (begin + key) % table.size, left = table.size - slot;
    const int count = left < keys - key ? (int)left : keys - key;
    visit(key, count, page_of(table, begin + key), slot);
    key += count;
  }
}

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

  // The address of each row; `hidden` for those of an absent page.
  void point(int64_t begin, int count, const T* hidden, const T** rows) const {
    for_each_page(table, begin, count, [&](int key, int of_page, int64_t page, int64_t slot) {
      const T* from = page < 0 ? nullptr : base + page * page_stride + slot * row_stride;
      for (int r = 0; r < of_page; r++) rows[key + r] = from ? from + r * row_stride : hidden;
    });
  }

  // In place if one page holds all rows; else the address of each, or with kGather a copy in `memory`. Of a
  // tile in several pages, the next one from key `next` on has `next_count` rows to prefetch.
  template <bool kGather>
  SourceRows find(int64_t begin, int count, int64_t next, int next_count, int E, PageMemory<T> memory) const {
    const T* first = row(begin);
    if (first && begin % table.size + count <= table.size) {
      const T* following = next_count > 0 ? row(next) : nullptr;
      return {first, row_stride, following ? following - first : 0};
    }
    // The probability 0 of a key in an absent page hides everything but NaN: its rows are 0.
    point(begin, count, (const T*)kAbsentRow, memory.rows);
    point(next, next_count, (const T*)kAbsentRow, memory.next_rows);
    if constexpr (!kGather) return {nullptr, row_stride, 0, memory.rows, memory.next_rows, next_count};
    const int64_t width = padded(E);
    for (int key = 0; key < count; key++) {
      if (key < next_count) prefetch(memory.next_rows[key], E * sizeof(T));
      memcpy(memory.gathered + key * width, memory.rows[key], E * sizeof(T));
    }
    return {memory.gathered, width, 0};
  }
};

// Marks the keys of absent pages in `absent`; false if all pages are there.
static bool mark_absent(const PageTable& table, int64_t begin, int count, uint8_t* absent) {
  bool any = false;
  for_each_page(table, begin, count, [&](int key, int of_page, int64_t page, int64_t) {
    memset(absent + key, page < 0, of_page);
    any = any || page < 0;
  });
  return any;
}

// Floats of memory that find_rows needs for a tile: for keys, for values, and to mark absent pages.
constexpr size_t gathered_floats(int key_tile, int E) {
  return 2 * PageMemory<float>::floats(key_tile, E) + key_tile / sizeof(float);
}

// The rows of `count` keys from logical key `begin` on, as one block of memory or, without kGather, also by
// address.
template <class T, bool kGather>
static KeyRows find_rows(const ForwardTask& task, int64_t begin, int count, int key_tile, float* memory) {
  const T *k = (const T*)task.k, *v = (const T*)task.v;
  const int64_t left = key_tile - begin % key_tile;  // to the next tile
  if (!task.pages.ids)
    return {{k + begin * task.k_row_stride, task.k_row_stride, left * task.k_row_stride},
            {v + begin * task.v_row_stride, task.v_row_stride, left * task.v_row_stride}};
  const int64_t next = begin + left, after = task.n_k - next;
  const int next_count = after > key_tile ? key_tile : after > 0 ? (int)after : 0;
  const PagedRows<T> keys = {task.pages, k, task.pages.k_stride, task.k_row_stride};
  const PagedRows<T> values = {task.pages, v, task.pages.v_stride, task.v_row_stride};
  float* const v_memory = memory + PageMemory<float>::floats(key_tile, task.E);
  auto* absent = (uint8_t*)(memory + 2 * PageMemory<float>::floats(key_tile, task.E));
  return {keys.template find<kGather>(begin, count, next, next_count, task.E, {memory, key_tile}),
          values.template find<kGather>(begin, count, next, next_count, task.E, {v_memory, key_tile}),
          mark_absent(task.pages, begin, count, absent) ? absent : nullptr};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
