// Memory from MLX's allocator, so that its counters see it.
#pragma once

#include <cstdint>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The first call raises glibc's thresholds for giving freed memory back to the system, for the whole process:
// see keep_freed_memory. Throws std::runtime_error for a size that cannot be had, for which MLX would hand
// out a null pointer.
mlx::core::allocator::Data allocate(int64_t bytes);

// An array with memory of its own, row after row.
mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype);

}  // namespace tiny_llm_ext::cpu
