// What a kernel may read beside its buffers: the constants of its library.
#pragma once

#include <cstdint>

namespace harness {

// Read-only data of the library that holds the kernel, and the function constants of its pipeline.
bool is_constant(const void* address, uint64_t bytes);

}  // namespace harness
