// Batch axes with a single stride, and those without.
#include "attention/gpu_layout.h"

#include <algorithm>
#include <limits>

#include "core/strides.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

static bool runs_backwards(const mx::array& array) {
  return std::any_of(array.strides().begin(), array.strides().end(), [](int64_t s) { return s < 0; });
}

bool gpu_reads_in_place(const mx::array& array, const mx::Shape& batch, bool readable) {
  if (array.size() == 0 || array.flags().row_contiguous) return true;
  return !readable && !runs_backwards(array) && last_axis_is_dense(array) && batch_stride(array, 3, batch);
}

std::optional<mx::Shape> gpu_copy_shape(const mx::array& array, int trailing, const mx::Shape& batch) {
  // The stride of lengths is an int32 and counts 32-bit words; lengths may have 64 bits.
  constexpr int64_t kMaxStride = std::numeric_limits<int32_t>::max() / 2;
  std::optional<int64_t> stride = batch_stride(array, trailing, batch);
  const bool too_far = trailing == 0 && stride > kMaxStride;
  if (stride && !too_far && !runs_backwards(array)) return std::nullopt;
  const int own = std::min(trailing, static_cast<int>(array.ndim()));
  mx::Shape shape = batch;
  shape.insert(shape.end(), trailing - own, 1);
  shape.insert(shape.end(), array.shape().end() - own, array.shape().end());
  return shape;
}

}  // namespace tiny_llm_ext
