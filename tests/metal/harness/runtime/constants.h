// The constants that a kernel may read in addition to its buffers.
#pragma once

#include <cstdint>

namespace harness {

// Read-only data of the library that holds the kernel, and the function constants of its pipeline.
bool is_constant(const void* address, uint64_t bytes);

}  // namespace harness
