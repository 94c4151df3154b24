// Copies rows that are not dense, 64 at a time.
#include "cpu/runtime/rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/divide_up.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

namespace {

constexpr int64_t kRowsPerItem = 64;

template <class Word>
void copy_words(const std::byte* from, int64_t stride, std::byte* to, int64_t count) {
  constexpr int64_t kBytes = sizeof(Word);
  for (int64_t e = 0; e < count; e++) {
    Word word;  // memcpy: the elements have another type
    std::memcpy(&word, from + e * stride * kBytes, kBytes);
    std::memcpy(to + e * kBytes, &word, kBytes);
  }
}

int64_t product_but_last(const mx::Shape& shape) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); axis++) rows *= shape[axis];
  return rows;
}

// One row, broadcast or alone.
bool is_one_row(const mx::array& x) { return product_but_last(shape_without_repeats(x)) == 1; }

}  // namespace

int64_t rows_of(const mx::array& x) { return product_but_last(x.shape()); }

void copy_rows(const RowReader& reader, int64_t count, std::byte* to, int threads) {
  const int64_t bytes = reader.row_bytes();
  parallel_for(divide_up(count, kRowsPerItem), threads, [&](int64_t item) {
    for (int64_t row = item * kRowsPerItem; row < std::min(count, (item + 1) * kRowsPerItem); row++) {
      const std::byte* from = reader.row(row, to + row * bytes);
      if (from != to + row * bytes) std::memcpy(to + row * bytes, from, bytes);
    }
  });
}

RowReader::RowReader(const mx::array& x)
    : RowReader(x.data<std::byte>(), x.itemsize(), x.shape(), x.strides()) {}

RowReader::RowReader(const std::byte* data, int64_t itemsize, const mx::Shape& shape,
                     const mx::Strides& strides)
    : data_(data),
      itemsize_(itemsize),
      width_(shape.back()),
      element_stride_(strides.back()),
      dense_(width_ <= 1 || element_stride_ == 1) {
  int64_t rows = 1;
  for (int axis = static_cast<int>(shape.size()) - 2; axis >= 0; axis--) {
    if (shape[axis] == 1) continue;
    if (rows == 1) stride_ = strides[axis];
    if (strides[axis] != rows * stride_) {
      axes_ = mx::Shape(shape.begin(), shape.end() - 1);
      axis_strides_ = mx::Strides(strides.begin(), strides.end() - 1);
      return;
    }
    rows *= shape[axis];
  }
}

const std::byte* RowReader::gather(int64_t index, std::byte* scratch) const {
  const std::byte* from = data_ + offset_of(index) * itemsize_;
  if (itemsize_ == 4) {
    copy_words<uint32_t>(from, element_stride_, scratch, width_);
  } else {
    copy_words<uint16_t>(from, element_stride_, scratch, width_);
  }
  return scratch;
}

RowMatrix::RowMatrix(int64_t count, int64_t width, int64_t itemsize)
    : stride_(width), itemsize_(itemsize), copy_(allocate(bytes_of({count, width, itemsize}))) {
  data_ = memory();
}

RowMatrix::RowMatrix(const mx::array& x, int threads)
    : RowMatrix(RowReader(x), is_one_row(x) ? 1 : rows_of(x), x.itemsize(), threads) {
  if (copy_ && is_one_row(x)) stride_ = 0;
}

RowMatrix::RowMatrix(const RowReader& reader, int64_t count, int64_t itemsize, int threads)
    : stride_(static_cast<int64_t>(reader.row_bytes()) / itemsize), itemsize_(itemsize) {
  if (const auto stride = reader.stride()) {
    data_ = reader.row(0, nullptr);
    stride_ = *stride;
    return;
  }
  copy_.emplace(allocate(bytes_of({count, stride_, itemsize_})));
  copy_rows(reader, count, memory(), threads);
  data_ = memory();
}

DenseRows::DenseRows(const mx::array& x, int threads)
    : data_(x.data<std::byte>()), strides_(x.strides()), itemsize_(x.itemsize()) {
  if (last_axis_is_dense(x)) return;
  const mx::Shape shape = shape_without_repeats(x);
  const RowReader reader(data_, itemsize_, shape, strides_);
  copy_.emplace(allocate(bytes_of(shape, x.dtype())));
  auto* const copy = static_cast<std::byte*>(copy_->buffer().raw_ptr());
  copy_rows(reader, product_but_last(shape), copy, threads);
  data_ = copy;
  int64_t size = shape.back();
  strides_.back() = 1;
  for (int axis = static_cast<int>(shape.size()) - 2; axis >= 0; axis--) {
    strides_[axis] = shape[axis] == 1 ? 0 : size;
    size *= shape[axis];
  }
}

}  // namespace tiny_llm_ext::cpu
