// Threads of a threadgroup as fibres of one thread of the machine: they switch only where they meet.
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
// Leaves the running fibre, until somebody switches back to it.
void switch_to(int thread);

}  // namespace harness
