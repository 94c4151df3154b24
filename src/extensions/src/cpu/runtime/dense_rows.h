// An input as the kernels read it: any strides, but a dense last axis.
#pragma once

#include <cstddef>
#include <optional>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// A view of the array's own memory where its last axis is dense, otherwise a view of a copy that lives as
// long as this.
class DenseRows {
 public:
  DenseRows(const mlx::core::array& array, int threads);

  // Address of an element, by its offset in the strides of this view.
  const std::byte* at(int64_t offset) const { return data_ + offset * itemsize_; }
  const mlx::core::Strides& strides() const { return strides_; }
  // Counted from the right: stride(2) is that of the rows.
  int64_t stride(int axis_from_right) const { return strides_[strides_.size() - axis_from_right]; }

 private:
  void copy_from(const mlx::core::array& array, int threads);

  const std::byte* data_;
  mlx::core::Strides strides_;
  int64_t itemsize_;
  std::optional<mlx::core::allocator::Data> copy_;
};

}  // namespace tiny_llm_ext::cpu
