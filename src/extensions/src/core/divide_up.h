// Rounding up. Kernel files include this: neither STL nor MLX.
#pragma once

#include <stdint.h>

namespace tiny_llm_ext {

constexpr int64_t kCacheLine = 64;  // bytes

// a / b and the next multiple of b, for a >= 0 and b >= 1.
static constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

}  // namespace tiny_llm_ext
