// The memory of caches, which only grow: who holds one of so many tokens never sees these change, so what
// comes behind them may be written while somebody still holds it, a step that is being computed for example.
#pragma once

#include <cstdint>

#include "core/cache_state.h"
#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Gives `out`, which has `added` tokens behind those of `cache` (N, H, capacity, E), memory: that of `cache`
// if the places of the new tokens are nobody's or nobody else holds it, or else its own. Returns whether it
// is that of `cache`.
bool place_grown(mlx::core::array& out, const mlx::core::array& cache, CacheState state, int64_t added);

}  // namespace tiny_llm_ext::cpu
