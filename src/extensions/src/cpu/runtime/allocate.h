// Memory from MLX's allocator, so that its counters see it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Bytes of a dense array, or of anything else: the product of its sizes, each at least 0. At most 2^62, so
// that a little more may be added; throws std::runtime_error for more, as that cannot be had.
int64_t bytes_of(const mlx::core::Shape& shape, mlx::core::Dtype dtype);
int64_t bytes_of(std::initializer_list<int64_t> sizes);

// The first call raises glibc's thresholds for giving freed memory back to the system, for the whole process:
// see keep_freed_memory. Throws std::runtime_error for a size that cannot be had, for which MLX would hand
// out a null pointer.
mlx::core::allocator::Data allocate(int64_t bytes);

// Gives the array memory of its own, row after row. MLX's own number of bytes may have lost its upper bits.
void allocate_for(mlx::core::array& array);

// An array with memory of its own, row after row.
mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype);

}  // namespace tiny_llm_ext::cpu
