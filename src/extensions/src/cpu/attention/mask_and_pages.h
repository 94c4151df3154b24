// Mask and pages of a call as its tasks read them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/problem.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/rows.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The mask in the caller's layout, addressed by batch entry, query head and key.
class MaskViews {
 public:
  MaskViews(const std::optional<mlx::core::array>& mask, MaskKind kind);

  MaskView view(int64_t b, const mlx::core::Shape& batch, int64_t head, int64_t key) const;

 private:
  const mlx::core::array* mask_ = nullptr;
  MaskKind kind_;
  mlx::core::Strides batch_strides_;
  int64_t head_stride_ = 0, row_stride_ = 0, key_stride_ = 0;
};

// The page tables of the batch, and a mask that hides the keys of absent pages.
class PageTables {
 public:
  PageTables(const mlx::core::array& block_table, const mlx::core::array& key_pages,
             const std::vector<Sequence>& sequences);

  PageTable table(int64_t b, const DenseRows& k, const DenseRows& v) const;
  MaskView mask(int64_t b) const;

 private:
  std::vector<uint8_t> find_present(const int32_t* ids, int64_t pages) const;

  int64_t width_, count_, size_;
  std::vector<int32_t> ids_;                   // [sequence][width]
  std::vector<std::vector<uint8_t>> present_;  // [sequence][key]; empty if all pages are present
};

}  // namespace tiny_llm_ext::cpu
