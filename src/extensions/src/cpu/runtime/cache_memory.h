// The memory of caches, which only grow: the tokens of an array never change, so the memory after them may be
// written while the array is still in use, by a step that is being computed for example.
#pragma once

#include <cstdint>

#include "core/cache_state.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Gives memory to `out`, which is `cache` (N, H, capacity, E) with `added` tokens more: the memory of `cache`
// if the places of the new tokens are free, or if nothing else uses it; else new memory. Returns whether it
// is the memory of `cache`.
bool place_grown(mlx::core::array& out, const mlx::core::array& cache, CacheState state, int64_t added);

}  // namespace tiny_llm_ext::cpu
