// The memory of row operations: where the rows of an input lie, and who may reuse it.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The rows of an array of 16 or 32 bit elements along its last axis, counted in the order of its other axes.
// Made before its data is there, and small enough to be carried to where it is.
class RowReader {
 public:
  explicit RowReader(const mlx::core::array& x);

  // The elements of that row, dense: where they lie, or gathered into `room`, which must hold row_bytes().
  const std::byte* row(int64_t index, void* room) const {
    if (!dense_) return gather(index, static_cast<std::byte*>(room));
    return data_ + (axes_.empty() ? index * stride_ : offset_of(index)) * itemsize_;
  }

  size_t row_bytes() const { return width_ * itemsize_; }

  // Elements from each row to the next; none where that differs or rows are not dense.
  std::optional<int64_t> stride() const {
    return dense_ && axes_.empty() ? std::optional(stride_) : std::nullopt;
  }

 private:
  int64_t offset_of(int64_t index) const;
  const std::byte* gather(int64_t index, std::byte* room) const;

  const std::byte* data_;
  int64_t itemsize_, width_, element_stride_, stride_ = 0;
  bool dense_;
  // Axes in front of the last one, where one stride does not lead from each row to the next.
  mlx::core::Shape axes_;
  mlx::core::Strides axis_strides_;
};

// Elements of 2 or 4 bytes that lie `stride` elements apart, side by side.
void copy_strided(const std::byte* from, int64_t stride, int64_t itemsize, std::byte* to, int64_t count);

// Gives `out` memory: that of the first of the inputs that lies like it and is not needed any more, or else
// its own. Returns whether it is an input's.
bool place_output(mlx::core::array& out, std::initializer_list<const mlx::core::array*> inputs);

// To be called before `place_output` where there are several outputs: MLX holds the inputs of an operation
// once for each of them, and an input that is held twice looks as if somebody else needed it. One list stays,
// that of the evaluation under way.
void hold_inputs_once(const std::vector<mlx::core::array>& inputs, std::vector<mlx::core::array>& outputs);

// Calls work(begin, end) for ranges that together are the rows 0 .. rows - 1. As many threads take part as
// the work is worth that is `cost` nanoseconds a row on one of them.
void for_rows(int64_t rows, double cost, int threads,
              const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace tiny_llm_ext::cpu
