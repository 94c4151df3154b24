// Which inputs of attention the GPU kernels read in place, and the shapes of copies of the others. Here, not
// in metal/, because explain() counts copies in builds without a GPU.
#pragma once

#include <optional>

#include "mlx/array.h"

namespace tiny_llm_ext {

// For query, key or value. The readable kernel needs a contiguous array, the others a dense last axis and one
// stride for the batch axes.
bool gpu_reads_in_place(const mlx::core::array& array, const mlx::core::Shape& batch, bool readable);

// The shape of the copy that the GPU kernels need of a mask, sinks or lengths; none for an array that they
// read in place.
std::optional<mlx::core::Shape> gpu_copy_shape(const mlx::core::array& array, int trailing,
                                               const mlx::core::Shape& batch);

}  // namespace tiny_llm_ext
