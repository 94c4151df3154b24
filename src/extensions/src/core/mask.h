// What limits the keys that a query row sees. Kernel files include this: neither STL nor MLX.
#pragma once

#include <stdint.h>

namespace tiny_llm_ext {

enum class MaskKind : int { none, boolean, f32, f16, bf16 };

constexpr int64_t kUnbounded = int64_t{1} << 48;  // a window without a limit on that side

}  // namespace tiny_llm_ext
