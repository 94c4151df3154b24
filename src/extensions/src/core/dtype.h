// MLX's types as element types.
#pragma once

#include "core/element.h"
#include "mlx/dtype.h"

namespace tiny_llm_ext {

// `dtype` is float32, float16 or bfloat16.
inline Element element_of(mlx::core::Dtype dtype) {
  return dtype == mlx::core::float32   ? Element::f32
         : dtype == mlx::core::float16 ? Element::f16
                                       : Element::bf16;
}

}  // namespace tiny_llm_ext
