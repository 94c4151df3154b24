// GPU evaluation in a build without GPU kernels. The router does not come here; a graph moved to the GPU
// would.
#include <sstream>
#include <stdexcept>

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

namespace {

[[noreturn]] void refuse(const char* function, const mx::Device& device) {
  std::ostringstream text;
  text << function << ": this build has no kernel for " << device;
  throw std::runtime_error(text.str());
}

}  // namespace

void Attention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse("flash_attention", device());
}

void PagedAttention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse("paged_attention", device());
}

void QuantizedMatmul::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse("quantized_matmul", device());
}

}  // namespace tiny_llm_ext
