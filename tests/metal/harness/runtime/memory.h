// The memory that a kernel may touch, and who touched it.
#pragma once

#include <cstdint>

namespace harness {

void forget_buffers();
void add_buffer(const char* name, void* address, uint64_t bytes, bool writable);
void add_threadgroup_array(const char* name, void* address, uint64_t bytes);
// A new threadgroup: its arrays hold NaN, and nobody has touched them.
void forget_threadgroup_memory();

}  // namespace harness
