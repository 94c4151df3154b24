// AVX2, FMA and F16C: everything is computed in float32.
#include "cpu/vec/avx2.h"

#include "cpu/isa/f32_kernels-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& avx2_kernels() {
  static const Kernels kernels = avx2::f32_kernels("avx2");
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
