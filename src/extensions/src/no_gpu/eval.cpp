// GPU evaluation in a build without GPU kernels. The router does not come here; a graph moved to the GPU
// would.
#include <sstream>
#include <stdexcept>

#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

void Attention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  std::ostringstream text;
  text << "flash_attention: this build has no kernel for " << device();
  throw std::runtime_error(text.str());
}

}  // namespace tiny_llm_ext
