// GPU evaluation in a build without GPU kernels. The router does not come here; a graph moved to the GPU
// would.
#include <sstream>
#include <stdexcept>

#include "attention/gpu.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

namespace {

[[noreturn]] void refuse(const char* function, const mx::Device& device) {
  std::ostringstream text;
  text << function << ": this build has no kernel for " << device;
  throw std::runtime_error(text.str());
}

}  // namespace

bool gpu::exists() { return false; }

void gpu::load_library(const std::string&) {}

const char* gpu::name() { return "gpu"; }

// No row of support.def has that name.
Verdict gpu::accepts(const Problem&) { return {false, "this build has no gpu kernel"}; }

void gpu::explain(const Problem&, Explanation&) {}

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
