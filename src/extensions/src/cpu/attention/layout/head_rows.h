// Where the rows of an operand of attention lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/rows.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Rows by batch entry, head and row, of an array (B..., H, L, width), or (B..., H, L) for the log-sum-exp.
// Packed rows (T, H, width) are the view (H, T, width): one entry, which all its sequences share. The entries
// of pages (P, H, page, width) are the pages. Offsets have 64 bits.
class HeadRows {
 public:
  // `strides` are those of the axes B..., H and L, in elements; an entry of the flattened `batch` is the
  // first argument of at().
  HeadRows(std::byte* data, int64_t itemsize, mlx::core::Shape batch, const mlx::core::Strides& strides);

  // Rows of `width` elements, dense along the last axis.
  static HeadRows of(const DenseRows& rows, int64_t itemsize, const mlx::core::Shape& batch);
  static HeadRows of(mlx::core::array& output, const mlx::core::Shape& batch);
  // One element a row.
  static HeadRows of_lse(mlx::core::array& lse, const mlx::core::Shape& batch);

  std::byte* at(int64_t entry, int64_t head, int64_t row) const;
  int64_t head_stride() const { return head_stride_; }
  int64_t row_stride() const { return row_stride_; }
  // From one entry to the next, where the batch has one axis.
  int64_t entry_stride() const { return batch_strides_.back(); }

 private:
  std::byte* data_;
  int64_t itemsize_;
  mlx::core::Shape batch_;
  mlx::core::Strides batch_strides_;
  int64_t head_stride_, row_stride_;
};

// Memory for packed rows: an array (B..., H, T) or (B..., H, T, width) in the order (B..., T, H, ...).
void allocate_packed(mlx::core::array& array, bool has_width);

}  // namespace tiny_llm_ext::cpu
