// Copies of arrays during an evaluation on the GPU.
#pragma once

#include "mlx/array.h"

namespace tiny_llm_ext::metal {

namespace mx = mlx::core;

// A dense copy of the array, broadcast to `shape`.
mx::array dense_copy(const mx::array& array, const mx::Shape& shape, mx::Stream stream);

}  // namespace tiny_llm_ext::metal
