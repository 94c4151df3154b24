// GPU evaluation in a build without GPU kernels. The router never chooses it, but a graph moved to the GPU
// would run it.
#include "attention/backends.h"
#include "attention/support.h"
#include "core/checks.h"
#include "core/gpu.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

bool gpu::exists() { return false; }

void gpu::load_library(const std::string&) {}

const char* gpu::name() { return "gpu"; }

// support.def has no rows for this name.
Verdict gpu::accepts(const Problem&) { return {false, "this build has no gpu kernel"}; }

void gpu::explain(const Problem&, Explanation&) {}

void Attention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu("flash_attention");
}

void QuantizedMatmul::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu("quantized_matmul");
}

}  // namespace tiny_llm_ext
