// Read bandwidth of memory: a lower bound on the time of decoding.
#pragma once

#include <cstddef>

namespace tiny_llm_ext::cpu {

// Bytes per second at which `threads` threads together read a buffer of `bytes` bytes, each its own part: the
// fastest of at least four passes in about `seconds`. A small buffer stays in the caches, so the result
// depends on its size. The buffer lies where weights do (cpu/runtime/placement.h). Throws an ArgumentError
// for an argument that is not positive.
double read_bandwidth(size_t bytes, int threads, double seconds);

}  // namespace tiny_llm_ext::cpu
