// What Python calls.
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
  set_order(order);
  clear_reports();
  forget_buffers();
  barriers = 0;
}

void harness_buffer(const char* name, void* address, uint64_t bytes, int writable) {
  add_buffer(name, address, bytes, writable != 0);
}

void harness_dispatch(void** slots, uint32_t x, uint32_t y, uint32_t z, uint32_t threads_each) {
  harness_set_slots(slots);
  for (linear_position = 0; linear_position < x * y * z; linear_position++) {
    position[0] = linear_position % x;
    position[1] = linear_position / x % y;
    position[2] = linear_position / x / y;
    run_threadgroup(static_cast<int>(threads_each));
  }
}

uint64_t harness_barriers() { return barriers; }

void harness_reports(char* text, uint64_t capacity) { snprintf(text, capacity, "%s", all_reports().c_str()); }
}
