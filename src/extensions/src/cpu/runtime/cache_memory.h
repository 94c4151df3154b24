// The memory of KV caches, which are append-only: the first `length` tokens never change, so a step may write
// the slots after them while another step still reads the same memory.
#pragma once

#include <cstdint>

#include "core/cache_state.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Gives memory to `out`, which is `cache` (N, H, capacity, E) with `added` tokens more: that of `cache` if
// the slots of the new tokens are free or no other array shares it, else new memory. Returns whether it is
// that of `cache`.
bool grow_or_allocate(mlx::core::array& out, const mlx::core::array& cache, CacheState state, int64_t added);

}  // namespace tiny_llm_ext::cpu
