// The number of threads of CPU kernels.
#pragma once

namespace tiny_llm_ext::cpu {

// TINY_LLM_THREADS, else the number of CPUs this process may use, see cpus.h. The variable is read at the
// first call; a value that is not a positive integer throws an ArgumentError.
int default_threads();

}  // namespace tiny_llm_ext::cpu
