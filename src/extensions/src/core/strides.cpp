// Layout arithmetic.
#include "core/strides.h"

#include <algorithm>
#include <utility>

namespace tiny_llm_ext {

namespace mx = mlx::core;

bool last_axis_is_dense(const mx::array& array) {
  return array.size() == 0 || array.shape(-1) == 1 || array.strides(-1) == 1;
}

mx::Strides broadcast_strides(const mx::array& array) {
  mx::Strides strides = array.strides();
  for (size_t axis = 0; axis < strides.size(); axis++) {
    if (array.shape(axis) == 1) strides[axis] = 0;
  }
  return strides;
}

mx::Shape shape_without_repeats(const mx::array& array) {
  mx::Shape shape = array.shape();
  for (size_t axis = 0; axis + 1 < shape.size(); axis++) {
    if (array.strides(axis) == 0) shape[axis] = 1;
  }
  return shape;
}

int64_t batch_offset(int64_t index, const mx::Shape& shape, const mx::Strides& strides) {
  int64_t offset = 0;
  int missing = static_cast<int>(shape.size() - strides.size());
  for (int axis = static_cast<int>(shape.size()) - 1; axis >= missing; axis--) {
    offset += index % shape[axis] * strides[axis - missing];
    index /= shape[axis];
  }
  return offset;
}

std::optional<int64_t> batch_stride(const mx::array& array, int trailing, const mx::Shape& batch) {
  mx::Strides strides = broadcast_strides(array);
  strides.resize(std::max<int>(0, static_cast<int>(strides.size()) - trailing));
  std::optional<int64_t> innermost;
  int64_t expected = 0;
  int missing = static_cast<int>(batch.size() - strides.size());
  for (int axis = static_cast<int>(batch.size()) - 1; axis >= 0; axis--) {
    if (batch[axis] == 1) continue;
    int64_t stride = axis < missing ? 0 : strides[axis - missing];
    if (innermost && stride != expected) return std::nullopt;
    if (!innermost) innermost = stride;
    expected = stride * batch[axis];
  }
  return innermost.value_or(0);
}

mx::array strided_view(const mx::array& array, mx::Shape shape, mx::Strides strides, int64_t offset) {
  mx::array view(std::move(shape), array.dtype(), nullptr, {});
  view.copy_shared_buffer(array, strides, {false, false, false}, array.data_size(), offset);
  return view;
}

mx::array split_first_axis(const mx::array& array, int size) {
  mx::Shape shape = array.shape();
  mx::Strides strides = array.strides();
  shape[0] /= size;
  shape.insert(shape.begin() + 1, size);
  strides.insert(strides.begin(), strides[0] * size);
  return strided_view(array, std::move(shape), std::move(strides), 0);
}

}  // namespace tiny_llm_ext
