// GPU evaluation of the quantized product.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/dtype.h"
#include "metal/copy.h"
#include "metal/device.h"
#include "metal/quantized_launch.h"
#include "mlx/allocator.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

void QuantizedMatmul::eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& product = outputs[0];
  const int64_t N = product.shape(-1), M = N == 0 ? 0 : product.size() / N;
  if (std::max(M, N) > metal::kMostQuantized) {
    throw std::runtime_error("quantized_matmul: " + std::to_string(M) + " rows and " + std::to_string(N) +
                             " outputs do not fit the integers of the Metal kernels");
  }
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
  const int rows = static_cast<int>(M), columns = static_cast<int>(N);
  const QuantizedArguments args =
      metal::quantized_arguments(rows, columns, inputs[0].shape(-1), params_.group_size);
  metal::dispatch(stream(), metal::quantized_matmul(rows, columns, params_.bits, element_of(product.dtype())),
                  bindings, {{kProductSlot, product}}, {kQuantizedArgumentsSlot, &args, sizeof args}, copies);
}

}  // namespace tiny_llm_ext
