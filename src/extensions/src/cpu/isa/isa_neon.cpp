// Arm NEON: everything is computed in float32.
#include "cpu/vec/neon.h"

#include "cpu/isa/f32_kernels-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& neon_kernels() {
  static const Kernels kernels = neon::f32_kernels("neon");
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
