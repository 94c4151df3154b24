// The rows of an array along its last axis, which kernels read dense: in place where the layout of the array
// allows it, otherwise from a copy.
#pragma once

#include <cstddef>
#include <optional>

#include "core/strides.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

int64_t rows_of(const mlx::core::array& x);

// Reads single rows, counted in the order of the other axes. Elements have 2 or 4 bytes. Can be made before
// the data of the array is computed, and is small enough to be captured by the work that reads it.
class RowReader {
 public:
  explicit RowReader(const mlx::core::array& x);
  RowReader(const std::byte* data, int64_t itemsize, const mlx::core::Shape& shape,
            const mlx::core::Strides& strides);
  // Rows of `width` elements, one after the other.
  RowReader(const std::byte* data, int64_t itemsize, int64_t width)
      : data_(data), itemsize_(itemsize), width_(width), element_stride_(1), stride_(width), dense_(true) {}

  // The elements of a row: in place, or gathered into `scratch`, which must hold row_bytes().
  const std::byte* row(int64_t index, void* scratch) const {
    if (!dense_) return gather(index, static_cast<std::byte*>(scratch));
    return data_ + offset_of(index) * itemsize_;
  }

  size_t row_bytes() const { return width_ * itemsize_; }

  // Elements from each row to the next; none if that varies or rows are not dense.
  std::optional<int64_t> stride() const {
    return dense_ && axes_.empty() ? std::optional(stride_) : std::nullopt;
  }

 private:
  // In elements.
  int64_t offset_of(int64_t index) const {
    return axes_.empty() ? index * stride_ : batch_offset(index, axes_, axis_strides_);
  }
  const std::byte* gather(int64_t index, std::byte* scratch) const;

  const std::byte* data_;
  int64_t itemsize_, width_, element_stride_, stride_ = 0;
  bool dense_;
  // All axes but the last, if no single stride leads from each row to the next; else empty.
  mlx::core::Shape axes_;
  mlx::core::Strides axis_strides_;
};

// Copies the rows 0 .. count - 1 to dense memory.
void copy_rows(const RowReader& reader, int64_t count, std::byte* to, int threads);

// All rows of an array as a matrix: one stride from each row to the next. Copied by all threads unless the
// array has that layout.
class RowMatrix {
 public:
  RowMatrix(const mlx::core::array& x, int threads);
  RowMatrix(const RowReader& reader, int64_t count, int64_t itemsize, int threads);

  // Rows in the memory of others.
  RowMatrix(const std::byte* data, int64_t stride, int64_t itemsize)
      : data_(data), stride_(stride), itemsize_(itemsize) {}

  // Uninitialized memory for `count` rows of `width` elements.
  RowMatrix(int64_t count, int64_t width, int64_t itemsize);

  const std::byte* at(int64_t row, int64_t column = 0) const {
    return data_ + (row * stride_ + column) * itemsize_;
  }
  int64_t stride() const { return stride_; }

  // The memory of a matrix that is not in place.
  std::byte* memory() { return static_cast<std::byte*>(copy_->buffer().raw_ptr()); }

 private:
  const std::byte* data_;
  int64_t stride_, itemsize_;
  std::optional<mlx::core::allocator::Data> copy_;
};

// All rows of an array with a stride for each axis, as attention addresses them. Copied by all threads unless
// its last axis is dense.
class DenseRows {
 public:
  DenseRows(const mlx::core::array& x, int threads);

  // The element at an offset in these strides.
  const std::byte* at(int64_t offset) const { return data_ + offset * itemsize_; }
  const mlx::core::Strides& strides() const { return strides_; }
  // Counted from the right: stride(2) is that of the rows.
  int64_t stride(int axis_from_right) const { return strides_[strides_.size() - axis_from_right]; }

 private:
  const std::byte* data_;
  mlx::core::Strides strides_;
  int64_t itemsize_;
  std::optional<mlx::core::allocator::Data> copy_;
};

}  // namespace tiny_llm_ext::cpu
