// Mask and pages of a call as its tasks read them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/problem.h"
#include "core/mask.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/interface/kernels.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The mask in the caller's layout, addressed by batch entry, query head and key.
class MaskViews {
 public:
  MaskViews(const std::optional<mlx::core::array>& mask, MaskKind kind);

  MaskView view(int64_t entry, const mlx::core::Shape& batch, int64_t head, int64_t key) const;

 private:
  const mlx::core::array* mask_ = nullptr;
  MaskKind kind_;
  mlx::core::Strides batch_strides_;
  int64_t head_stride_ = 0, row_stride_ = 0, key_stride_ = 0;
};

// The block table of a call and the layout of its pages.
class PageTables {
 public:
  // Of `pages` pages with `page_size` slots.
  PageTables(const mlx::core::array& block_table, int64_t pages, int64_t page_size);

  // The pages of a sequence whose rows see `left` keys before their position, in the memory of `k` and `v`,
  // whose entries are the pages.
  PageTable table(const Sequence& sequence, int64_t left, const HeadRows& k, const HeadRows& v) const;

 private:
  int64_t width_, count_, size_;
  std::vector<int32_t> ids_;  // [row][width]
};

}  // namespace tiny_llm_ext::cpu
