// Division that rounds up.
#pragma once

#include <cstdint>

namespace tiny_llm_ext {

// Of a >= 0 and b >= 1.
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tiny_llm_ext
