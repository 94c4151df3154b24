// The state of the one threadgroup that runs, and the steps of its life.
#pragma once

#include <cstdint>

#include "fibre.h"

namespace harness {

constexpr int kLanes = 32;

enum class Wait : int { nothing, simd_operation, simdgroup_barrier, threadgroup_barrier, end };

// mem_flags of the Metal language.
enum Memory { kDeviceMemory = 1, kThreadgroupMemory = 2 };

struct Thread {
  Wait wait;
  int line;   // where it waits
  int flags;  // of the barrier it waits at
};

// The lanes of one SIMD group meet in operations. Two results are kept, since a fast lane may be in the next
// operation while a slow one has yet to read the last.
struct SimdGroup {
  int turn;
  int arrived;
  int operation, line;
  bool mixed;  // lanes wait at different operations
  uint32_t slot[2][kLanes];
  uint32_t result[2];
  float operands[2][kLanes][4], product[2][kLanes][2];  // of matrices
  uint32_t epoch;  // counts the barriers that order its threadgroup memory
};

extern Thread threads[kMostThreads];
extern SimdGroup simd_groups[kMostThreads / kLanes];
extern uint32_t epoch;  // counts the barriers that order threadgroup memory for all
extern uint32_t position[3], linear_position;
extern uint64_t barriers;  // that whole threadgroups have passed

// A new run. In which order lanes and SIMD groups run: 0 as numbered, 1 backwards, others shuffled.
void start_run(int seed);
// A threadgroup of so many threads; reports what they do wrong and gives up on them.
void run_threadgroup(int thread_count);

// The running fibre waits; others run.
void wait_here(Wait wait, int line, int flags);
// The running fibre did what must not be done: its threadgroup ends.
void give_up();
// The same for the whole run: nobody knows what the memory that was touched belongs to.
void end_run();
bool run_has_ended();

}  // namespace harness
