// Layouts of arrays: dense last axes, batch axes, broadcast axes. Strides count elements.
#pragma once

#include <cstdint>
#include <optional>

#include "mlx/array.h"

namespace tiny_llm_ext {

// Whether neighbours along the last axis lie side by side.
bool last_axis_is_dense(const mlx::core::array& array);

// The strides of `array` with 0 along axes of size 1, which broadcast.
mlx::core::Strides broadcast_strides(const mlx::core::array& array);

// The shape of `array` with size 1 for each axis of stride 0 but the last: as much as a copy has to hold.
mlx::core::Shape shape_without_repeats(const mlx::core::array& array);

// Offset of entry `index` of the flattened batch axes `shape`. `strides` is aligned with `shape` on the right
// and may be shorter.
int64_t batch_offset(int64_t index, const mlx::core::Shape& shape, const mlx::core::Strides& strides);

// The one stride from entry to entry of the flattened batch axes `batch`, which are all axes of `array` but
// the last `trailing`; none where entries are not evenly spaced.
std::optional<int64_t> batch_stride(const mlx::core::array& array, int trailing,
                                    const mlx::core::Shape& batch);

// An array in a part of the memory of `array`, `offset` elements from its start.
mlx::core::array strided_view(const mlx::core::array& array, mlx::core::Shape shape,
                              mlx::core::Strides strides, int64_t offset);

// A view of (n * size, ...) as (n, size, ...).
mlx::core::array split_first_axis(const mlx::core::array& array, int size);

}  // namespace tiny_llm_ext
