// How fast memory can be read: the floor under everything that streams keys and values.
#pragma once

#include <cstddef>

namespace tiny_llm_ext::cpu {

// Bytes per second at which `threads` threads together read a buffer of `bytes` bytes over and over, each its
// own part, for about `seconds` and at least four times. A small buffer stays in the caches, so the answer
// belongs to its size. The fastest of several passes counts. Throws an ArgumentError when an argument is
// not positive.
double read_bandwidth(size_t bytes, int threads, double seconds);

}  // namespace tiny_llm_ext::cpu
