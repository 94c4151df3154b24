// The threads of a threadgroup as fibres of one CPU thread: they switch only where they synchronise.
#pragma once

#include <cstddef>

namespace harness {

constexpr int kMostThreads = 1024;
constexpr int kScheduler = -1;

// The fibre that runs, or kScheduler.
extern int running;

void make_stacks();
bool on_a_stack(const void* address);
// `thread` will start in `entry`, which must not return.
void start_fibre(int thread, void (*entry)());
// Suspends the running fibre until another one switches back to it.
void switch_to(int thread);

}  // namespace harness
