// The functions that Python calls.
#include <cstdio>
#include <cstring>

#include "memory.h"
#include "report.h"
#include "threadgroup.h"

using namespace harness;

// Generated from the signature of the kernel.
extern "C" void harness_set_slots(void** slots);

extern "C" {
void harness_array(const char* name, uint64_t offset, uint64_t bytes, char* base) {
  add_threadgroup_array(name, base + offset, bytes);
}

void harness_start(int order) {
  make_stacks();
  start_run(order);
  clear_reports();
  forget_buffers();
}

void harness_buffer(const char* name, void* address, uint64_t bytes, int writable) {
  add_buffer(name, address, bytes, writable != 0);
}

// Runs the threadgroups at these positions (x, y, z) in the grid, each of `threads_each` threads.
void harness_dispatch(void** slots, const uint32_t* positions, uint32_t count, uint32_t threads_each) {
  harness_set_slots(slots);
  for (linear_position = 0; linear_position < count && !run_has_ended(); linear_position++) {
    memcpy(position, positions + uint64_t{3} * linear_position, sizeof position);
    run_threadgroup(static_cast<int>(threads_each));
  }
}

uint64_t harness_barriers() { return barriers; }

void harness_reports(char* text, uint64_t capacity) { snprintf(text, capacity, "%s", all_reports().c_str()); }
}
