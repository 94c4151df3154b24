// Memory from MLX's allocator, so that its counters see it.
#pragma once

#include <cstdint>

#include "mlx/allocator.h"

namespace tiny_llm_ext::cpu {

// Throws std::runtime_error for a size that cannot be had, for which MLX would hand out a null pointer.
mlx::core::allocator::Data allocate(int64_t bytes);

}  // namespace tiny_llm_ext::cpu
