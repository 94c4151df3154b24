// Reuse of inputs that MLX calls donatable.
#include "cpu/runtime/output_memory.h"

#include "cpu/runtime/allocate.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

bool reuse_or_allocate(mx::array& out, std::initializer_list<const mx::array*> inputs) {
  for (const mx::array* input : inputs) {
    if (input->is_donatable() && input->flags().row_contiguous && input->dtype() == out.dtype() &&
        input->shape() == out.shape()) {
      out.copy_shared_buffer(*input);
      return true;
    }
  }
  allocate_for(out);
  return false;
}

void drop_sibling_references(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  for (mx::array& output : outputs) {
    // A tracer is differentiated after its evaluation.
    if (&output.inputs() != &inputs && !output.is_tracer()) output.inputs().clear();
  }
}

}  // namespace tiny_llm_ext::cpu
