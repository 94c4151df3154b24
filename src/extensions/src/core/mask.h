// Kinds of masks, and the keys that a row sees by position. Kernel files include this: neither STL nor MLX.
#pragma once

#include <stdint.h>

namespace tiny_llm_ext {

enum class MaskKind : int { none, boolean, f32, f16, bf16 };

constexpr int64_t kUnbounded = int64_t{1} << 48;  // a window without a limit on that side

// A row at a logical position sees the keys first_key .. last_key of n_k: `left` keys before its position and
// `right` after it; none if last_key is below first_key.
static inline int64_t first_key(int64_t position, int64_t left) {
  return position > left ? position - left : 0;
}
static inline int64_t last_key(int64_t position, int64_t n_k, int64_t right) {
  return position + right < n_k - 1 ? position + right : n_k - 1;
}

}  // namespace tiny_llm_ext
