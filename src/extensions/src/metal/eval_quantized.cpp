// GPU evaluation of the quantized product.
#include "attention/inputs.h"
#include "metal/copy.h"
#include "metal/device.h"
#include "metal/quantized_launch.h"
#include "mlx/allocator.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

void QuantizedMatmul::eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& product = outputs[0];
  product.set_data(mx::allocator::malloc(product.nbytes()));
  if (product.size() == 0) return;

  constexpr int kSlots[] = {kRowsSlot, kWordsSlot, kScalesSlot, kBiasesSlot};  // in the order of the inputs
  std::vector<metal::Binding> bindings;
  std::vector<mx::array> copies;
  for (size_t i = 0; i < inputs.size(); i++) {
    mx::array dense = inputs[i].size() == 0 ? product : inputs[i];
    if (!dense.flags().row_contiguous) {
      dense = metal::dense_copy(dense, dense.shape(), stream());
      copies.push_back(dense);
    }
    bindings.push_back({kSlots[i], dense});
  }
  const int N = product.shape(-1), K = inputs[0].shape(-1), M = static_cast<int>(product.size() / N);
  const QuantizedArguments args = metal::quantized_arguments(M, N, K, params_.group_size);
  metal::dispatch(stream(), metal::quantized_matmul(M, N, params_.bits, element_of(product.dtype())),
                  bindings, {{kProductSlot, product}}, {kQuantizedArgumentsSlot, &args, sizeof args}, copies);
}

}  // namespace tiny_llm_ext
