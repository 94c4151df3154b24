// The GPU back end of this build. One folder defines it: metal/, or no_gpu/.
#pragma once

#include <string>

namespace tiny_llm_ext::gpu {

bool exists();

// Its name in attention/support.def.
const char* name();

// Loads the kernels from `folder` instead of the package's. Call it before the first kernel runs.
void load_library(const std::string& folder);

}  // namespace tiny_llm_ext::gpu
