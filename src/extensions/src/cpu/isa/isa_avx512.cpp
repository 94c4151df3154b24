// AVX-512 without bfloat16 products: everything is computed in float32.
#include "cpu/vec/avx512.h"

#include "cpu/isa/f32_kernels-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& avx512_kernels() {
  static const Kernels kernels = avx512::f32_kernels("avx512");
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
