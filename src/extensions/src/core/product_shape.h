// Shapes of products.
#pragma once

#include "mlx/array.h"

namespace tiny_llm_ext {

// The shape (..., N) of the product of x (..., K) and the transpose of w (N, ...), packed or not.
inline mlx::core::Shape product_shape(const mlx::core::array& x, const mlx::core::array& w) {
  mlx::core::Shape shape = x.shape();
  shape.back() = w.shape(0);
  return shape;
}

}  // namespace tiny_llm_ext
