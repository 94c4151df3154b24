// Where the rows of a decode step's key tiles lie, and in which order they are prefetched.
#pragma once

#include "cpu/attention/pages-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Keys or values of a tile: rows with one stride, or the address of each.
template <int kTile>
struct RowsOfTile {
  SourceRows rows;
  const uint16_t* addresses[kTile];

  // To the next KV head. Rows of absent pages stay where they are.
  void advance(int64_t stride, int count, const uint8_t* absent) {
    if (rows.rows)
      for (int key = 0; key < count; key++) addresses[key] += absent && absent[key] ? 0 : stride;
    else if (!absent)
      rows.data = rows.at<false>(0) + stride;
  }
};

template <int kTile>
struct KeysAndValues {
  RowsOfTile<kTile> k, v;
  int count = 0;
  bool any_absent = false;
  uint8_t marks[kTile];  // whether a key is in an absent page

  const uint8_t* absent() const { return any_absent ? marks : nullptr; }

  // Of the keys from `begin` on, in the tile of `begin` and below `end`: in the pages of `ids`, or rows of
  // `keys` and `values`.
  void find(const ForwardTask& task, const void* keys, const void* values, const int32_t* ids, int64_t begin,
            int64_t end) {
    const auto *k0 = (const uint16_t*)keys, *v0 = (const uint16_t*)values;
    const int64_t k_stride = task.k_row_stride, v_stride = task.v_row_stride;
    const int64_t left = kTile - begin % kTile;
    count = (int)(begin + left < end ? left : end > begin ? end - begin : 0);
    any_absent = false;
    k.rows = {k0 + begin * k_stride, k_stride};
    v.rows = {v0 + begin * v_stride, v_stride};
    const PageTable& table = task.pages;
    if (!table.ids) return;
    int64_t page = begin / table.size, slot = begin % table.size;
    for (int key = 0; key < count; page++, slot = 0) {
      const int64_t id = ids[page], rest = table.size - slot;
      const int run = rest < count - key ? (int)rest : count - key;
      const bool present = 0 <= id && id < table.count;
      any_absent = any_absent || !present;
      k.rows = v.rows = {kAbsentRow, 0};
      if (present) {
        k.rows = {k0 + id * table.k_stride + slot * k_stride, k_stride};
        v.rows = {v0 + id * table.v_stride + slot * v_stride, v_stride};
      }
      memset(marks + key, !present, run);
      if (run == count) return;  // one page holds the tile
      for (int r = 0; r < run; r++, key++) {
        k.addresses[key] = k.rows.template at<false>(r);
        v.addresses[key] = v.rows.template at<false>(r);
      }
    }
    k.rows = {nullptr, k_stride, 0, k.addresses};
    v.rows = {nullptr, v_stride, 0, v.addresses};
  }

  // To the next KV head.
  void advance(int64_t k_stride, int64_t v_stride) {
    k.advance(k_stride, count, absent());
    v.advance(v_stride, count, absent());
  }
};

// Rows to prefetch: line() between the loads of the current product, rest() for all that are left.
struct PrefetchRows {
  SourceRows rows;
  int count;

  const uint16_t* at(int row) const { return rows.rows ? rows.at<true>(row) : rows.at<false>(row); }
  inline __attribute__((always_inline)) void line(int row, int e) const {
    if (row < count) prefetch_l2(at(row) + e);
  }
  void rest(int row, int E) const {
    for (; row < count; row++) prefetch(at(row), E * sizeof(uint16_t));
  }
};

// Shares of the next tile's rows in pages, one for each KV head: prefetched while that head is computed, they
// arrive a whole tile ahead. A share is some keys with all their heads: the heads of a page lie beside each
// other.
template <int kTile>
struct PrefetchShare {
  const uint16_t* rows[kTile];

  PrefetchRows of(const RowsOfTile<kTile>& tile, int count, int head, int heads, int64_t head_stride) {
    const PrefetchRows from = {tile.rows, count};
    int key = head * count / heads, of_key = head * count % heads;
    for (int n = 0; n < count; key++, of_key = 0) {
      const uint16_t* const row = from.at(key);
      for (; of_key < heads && n < count; of_key++) rows[n++] = row + of_key * head_stride;
    }
    return {{nullptr, 0, 0, rows}, count};
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
