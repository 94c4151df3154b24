// Scratch memory of kernels.
#pragma once

#include <cstddef>

namespace tiny_llm_ext::cpu {

// Memory of the calling thread, 64-byte aligned, at least `bytes` large, reused from call to call.
void* thread_scratch(size_t bytes);

}  // namespace tiny_llm_ext::cpu
