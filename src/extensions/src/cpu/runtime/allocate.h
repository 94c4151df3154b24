// Memory from MLX's allocator, so that its counters see it.
#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The first call raises glibc's thresholds for returning freed memory to the system, for the whole process:
// see keep_freed_memory. Throws std::runtime_error for a size that cannot be allocated, where MLX would
// return a null pointer.
mlx::core::allocator::Data allocate(int64_t bytes);

// Allocates row-contiguous memory for the array. (MLX's own nbytes() may have overflowed.)
void allocate_for(mlx::core::array& array);

// A row-contiguous array with new memory.
mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype);

}  // namespace tiny_llm_ext::cpu
