// Rounding with MLX's types.
#include "cpu/attention/layout/store_row.h"

#include <algorithm>

#include "mlx/types/half_types.h"

namespace tiny_llm_ext::cpu {

void store_row(const std::vector<float>& row, Element type, std::byte* to) {
  switch (type) {
    case Element::f32:
      std::copy(row.begin(), row.end(), reinterpret_cast<float*>(to));
      break;
    case Element::f16:
      std::copy(row.begin(), row.end(), reinterpret_cast<mlx::core::float16_t*>(to));
      break;
    case Element::bf16:
      std::copy(row.begin(), row.end(), reinterpret_cast<mlx::core::bfloat16_t*>(to));
      break;
  }
}

}  // namespace tiny_llm_ext::cpu
