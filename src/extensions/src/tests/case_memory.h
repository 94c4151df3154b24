// The arrays of a case in guarded memory, and what its tests compare.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "cpu/interface/kernels.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {

// The layout of [heads][rows][width]: a dense last axis, and perhaps a gap after each row.
struct Layout {
  int64_t heads, rows, width, head_stride, row_stride;

  Layout(int64_t heads, int64_t rows, int64_t width, int64_t gap, bool heads_outside)
      : heads(heads), rows(rows), width(width) {
    const int64_t row = width + gap;
    head_stride = heads_outside ? rows * row : row;
    row_stride = heads_outside ? row : heads * row;
  }
  int64_t at(int64_t head, int64_t row, int64_t x) const { return head * head_stride + row * row_stride + x; }
  size_t extent() const { return heads && rows ? at(heads - 1, rows - 1, width - 1) + 1 : 0; }
};

inline Guarded write(const Layout& layout, Element element, Guard side, const std::vector<double>& values) {
  Guarded memory(layout.extent() * bytes_of(element), side);
  size_t next = 0;
  for (int64_t h = 0; h < layout.heads; ++h) {
    for (int64_t r = 0; r < layout.rows; ++r) {
      for (int64_t x = 0; x < layout.width; ++x) put(memory, element, layout.at(h, r, x), values[next++]);
    }
  }
  return memory;
}

// A mask without its broadcast axes; in some cases the key axis is the outer one.
struct MaskMemory {
  cpu::MaskView view{};
  std::unique_ptr<Guarded> memory;

  explicit MaskMemory(const AttentionCase& c) {
    view.kind = c.mask_kind;
    if (c.mask_kind == MaskKind::none) return;
    const int64_t heads = c.mask_per_head ? c.gqa_heads : 1, rows = c.mask_per_row ? c.L : 1;
    const int64_t keys = c.mask_per_key ? c.n_k : std::min<int64_t>(c.n_k, 1);
    view.head_stride = c.mask_per_head ? rows * keys : 0;
    view.row_stride = c.mask_per_row ? (c.mask_keys_outside ? 1 : keys) : 0;
    view.key_stride = c.mask_per_key ? (c.mask_keys_outside ? rows : 1) : 0;
    const size_t size = c.mask_kind == MaskKind::boolean ? 1 : c.mask_kind == MaskKind::f32 ? 4 : 2;
    memory = std::make_unique<Guarded>(heads * rows * keys * size, c.guard);
    view.data = memory->as<void>();
    for (int64_t g = 0; g < heads; ++g) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t t = 0; t < keys; ++t) {
          const int64_t index = g * view.head_stride + i * view.row_stride + t * view.key_stride;
          const double x = c.mask[(g * c.L + i) * c.n_k + t];
          switch (c.mask_kind) {
            case MaskKind::boolean:
              memory->as<uint8_t>()[index] = x == 0;
              break;
            case MaskKind::f16:
              put(*memory, Element::f16, index, x);
              break;
            case MaskKind::bf16:
              put(*memory, Element::bf16, index, x);
              break;
            default:
              put(*memory, Element::f32, index, x);
          }
        }
      }
    }
  }
};

// The keys and values of a case in pages, in another order. Slots without a key are NaN.
class PagedKeys {
 public:
  PagedKeys(const AttentionCase& c, int64_t page_size)
      : ids_((c.n_k + page_size - 1) / page_size),
        page_size_(page_size),
        stride_(page_size * c.E),
        k_(ids_.size() * stride_ * bytes_of(c.element), c.guard),
        v_(ids_.size() * stride_ * bytes_of(c.element), c.guard) {
    const auto count = static_cast<int64_t>(ids_.size());
    for (int64_t i = 0; i < count; ++i) ids_[i] = static_cast<int32_t>(i % 2 ? i / 2 : count - 1 - i / 2);
    for (int64_t t = 0; t < c.n_k; ++t) {
      for (int e = 0; e < c.E; ++e) {
        const int64_t index = ids_[t / page_size] * stride_ + t % page_size * c.E + e;
        put(k_, c.element, index, c.k[t * c.E + e]);
        put(v_, c.element, index, c.v[t * c.E + e]);
      }
    }
  }

  const void* k() const { return k_.as<void>(); }
  const void* v() const { return v_.as<void>(); }
  cpu::PageTable table() const {
    return {ids_.data(), static_cast<int64_t>(ids_.size()), page_size_, stride_, stride_};
  }

  // Takes away every third page, from the first on.
  void evict() {
    for (size_t i = 0; i < ids_.size(); i += 3) ids_[i] = -1;
  }

 private:
  std::vector<int32_t> ids_;
  int64_t page_size_, stride_;
  Guarded k_, v_;
};

// The (query tile, key tile) pairs with visible keys, from the first and last row of each query tile.
inline int64_t expected_tiles(const AttentionCase& c, int64_t row_tile, int64_t key_tile) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < c.n_q * c.gqa_heads; begin += row_tile) {
    const int64_t r0 = begin / c.gqa_heads,
                  r1 = (std::min(begin + row_tile, c.n_q * c.gqa_heads) - 1) / c.gqa_heads;
    const int64_t last = std::min(c.n_k - 1, r1 + c.n_k - c.n_q + c.right);
    const int64_t first = std::max<int64_t>(0, r0 + c.n_k - c.n_q - c.left);
    if (last >= first) count += last / key_tile - first / key_tile + 1;
  }
  return count;
}

inline bool near(double got, double expected, double error) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::fabs(got - expected) <= error;
}

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
