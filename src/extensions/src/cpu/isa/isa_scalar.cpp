// Plain C++ for any processor: everything is computed in float32.
#include "cpu/vec/scalar.h"

#include "cpu/isa/f32_kernels-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& scalar_kernels() {
  static const Kernels kernels = scalar::f32_kernels("scalar");
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
