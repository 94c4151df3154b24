// Strides by axis.
#include "cpu/attention/layout/head_rows.h"

#include <utility>

#include "core/bytes.h"
#include "core/strides.h"
#include "cpu/runtime/allocate.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

HeadRows::HeadRows(std::byte* data, int64_t itemsize, mx::Shape batch, const mx::Strides& strides)
    : data_(data),
      itemsize_(itemsize),
      batch_(std::move(batch)),
      batch_strides_(strides.begin(), strides.end() - 2),
      head_stride_(strides[strides.size() - 2]),
      row_stride_(strides.back()) {}

static mx::Strides without_last(const mx::Strides& strides) { return {strides.begin(), strides.end() - 1}; }

HeadRows HeadRows::of(const DenseRows& rows, int64_t itemsize, const mx::Shape& batch) {
  // Inputs are never written; outputs have constructors of their own.
  return {const_cast<std::byte*>(rows.at(0)), itemsize, batch, without_last(rows.strides())};
}

HeadRows HeadRows::of(mx::array& output, const mx::Shape& batch) {
  return {output.data<std::byte>(), static_cast<int64_t>(output.itemsize()), batch,
          without_last(output.strides())};
}

HeadRows HeadRows::of_lse(mx::array& lse, const mx::Shape& batch) {
  return {lse.data<std::byte>(), static_cast<int64_t>(lse.itemsize()), batch, lse.strides()};
}

std::byte* HeadRows::at(int64_t entry, int64_t head, int64_t row) const {
  const int64_t offset =
      batch_offset(entry, batch_, batch_strides_) + head * head_stride_ + row * row_stride_;
  return data_ + offset * itemsize_;
}

void allocate_packed(mx::array& array, bool has_width) {
  const int axes = static_cast<int>(array.ndim()), heads_axis = axes - (has_width ? 3 : 2);
  const int64_t width = has_width ? array.shape(-1) : 1;
  const int64_t heads = array.shape(heads_axis), rows = array.shape(heads_axis + 1);
  mx::Strides strides(axes, 1);
  strides[heads_axis] = width;
  strides[heads_axis + 1] = heads * width;
  int64_t entry = heads * rows * width;
  for (int axis = heads_axis - 1; axis >= 0; axis--) strides[axis] = entry, entry *= array.shape(axis);
  array.set_data(allocate(bytes_of(array.shape(), array.dtype())), array.size(), std::move(strides),
                 {.contiguous = true, .row_contiguous = false, .col_contiguous = false});
}

}  // namespace tiny_llm_ext::cpu
