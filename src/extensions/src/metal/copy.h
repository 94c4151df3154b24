// Copies of arrays in the middle of an evaluation on the GPU.
#pragma once

#include "mlx/array.h"

namespace tiny_llm_ext::metal {

namespace mx = mlx::core;

// A dense copy with the leading axes of `shape`, over which the array is spread.
mx::array dense_copy(const mx::array& array, const mx::Shape& shape, mx::Stream stream);

}  // namespace tiny_llm_ext::metal
