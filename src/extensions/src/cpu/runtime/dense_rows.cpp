// Repairs layouts that the kernels cannot read.
#include "cpu/runtime/dense_rows.h"

#include <algorithm>

#include "attention/inputs.h"
#include "attention/tiles.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr int64_t kRowsPerItem = 64;

}  // namespace

DenseRows::DenseRows(const mx::array& array, int threads)
    : data_(array.data<std::byte>()), strides_(array.strides()), itemsize_(array.itemsize()) {
  if (!last_axis_is_dense(array)) copy_from(array, threads);
}

void DenseRows::copy_from(const mx::array& array, int threads) {
  mx::Shape shape = repaired_shape(array);
  copy_.emplace(allocate(bytes_of(shape, array.dtype())));
  auto* copy = static_cast<std::byte*>(copy_->buffer().raw_ptr());

  int64_t E = shape.back(), size = E, rows = 1;
  shape.pop_back();
  mx::Strides source = strides_;
  source.pop_back();
  strides_.back() = 1;
  for (int axis = static_cast<int>(shape.size()) - 1; axis >= 0; axis--) {
    strides_[axis] = shape[axis] == 1 ? 0 : size;
    size *= shape[axis];
    rows *= shape[axis];
  }
  const std::byte* from = data_;
  int64_t stride = array.strides(-1);
  parallel_for(divide_up(rows, kRowsPerItem), threads, [&](int64_t item) {
    for (int64_t row = item * kRowsPerItem; row < std::min(rows, (item + 1) * kRowsPerItem); row++) {
      const std::byte* begin = from + batch_offset(row, shape, source) * itemsize_;
      copy_strided(begin, stride, itemsize_, copy + row * E * itemsize_, E);
    }
  });
  data_ = copy;
}

}  // namespace tiny_llm_ext::cpu
