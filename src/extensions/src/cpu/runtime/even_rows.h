// An input whose rows a product reads one stride apart: in place where they lie so, otherwise a copy.
#pragma once

#include <cstddef>
#include <optional>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// How many rows an array has along its last axis.
int64_t rows_of(const mlx::core::array& x);

class EvenRows {
 public:
  // Room for rows of so many elements, which somebody else fills.
  EvenRows(int64_t count, int64_t width, int64_t itemsize);

  // The rows of an array along its last axis, in the order of its other axes.
  EvenRows(const mlx::core::array& x, int threads);

  const std::byte* at(int64_t row, int64_t column, int64_t itemsize) const {
    return data_ + (row * stride_ + column) * itemsize;
  }
  int64_t stride() const { return stride_; }

  // Where the rows are written.
  std::byte* place() { return static_cast<std::byte*>(copy_->buffer().raw_ptr()); }

 private:
  const std::byte* data_;
  int64_t stride_;
  std::optional<mlx::core::allocator::Data> copy_;
};

}  // namespace tiny_llm_ext::cpu
