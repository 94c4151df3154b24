// The memory that a kernel may access, and the thread that accessed it last.
#pragma once

#include <cstdint>

namespace harness {

void forget_buffers();
void add_buffer(const char* name, void* address, uint64_t bytes, bool writable);
void add_threadgroup_array(const char* name, void* address, uint64_t bytes);
// For a new threadgroup: fills its arrays with NaN and marks them as uninitialised.
void forget_threadgroup_memory();

}  // namespace harness
