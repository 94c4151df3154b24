// The state of the running threadgroup, and its scheduling.
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

// The lanes of one SIMD group synchronise in operations. Two results are kept, because a fast lane may be in
// the next operation before a slow lane has read the last result.
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
extern uint64_t barriers;  // counts the barriers that whole threadgroups passed

// Starts a new run. Order of lanes and SIMD groups: 0 as numbered, 1 reversed, others shuffled.
void start_run(int seed);
// Runs a threadgroup; ends it at the first mistake, which is reported.
void run_threadgroup(int thread_count);

// Suspends the running fibre; others run.
void wait_here(Wait wait, int line, int flags);
// Ends the threadgroup after a mistake of the running fibre.
void give_up();
// Ends the whole run after an access to memory of unknown owner.
void end_run();
bool run_has_ended();

}  // namespace harness
