// Memory from MLX's allocator, so that its counters see it.
#pragma once

#include <cstdint>
#include <functional>

#include "core/bytes.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// The first call raises glibc's thresholds for returning freed memory to the system, for the whole process:
// see keep_freed_memory. Throws std::runtime_error for a size that cannot be allocated, where MLX would
// return a null pointer.
mlx::core::allocator::Data allocate(int64_t bytes);

// The same for weights and pages, which stay and which all threads read: placed as in placement.h at any
// size. `allocate` does that for the largest blocks.
mlx::core::allocator::Data allocate_for_long(int64_t bytes);

// Allocates row-contiguous memory for the array. (MLX's own nbytes() may have overflowed.)
void allocate_for(mlx::core::array& array);

// A row-contiguous array with new memory.
mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype);

// Zeros that stay for long, written by all threads.
mlx::core::array new_zeros(mlx::core::Shape shape, mlx::core::Dtype dtype);

// Calls work(begin, end) for parts of a block of `bytes` bytes, on all threads: each begins with the range
// that it reads when a product with the block as weights is cut into ranges.
void for_each_part(int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace tiny_llm_ext::cpu
