// Runs one threadgroup, SIMD group after SIMD group, from barrier to barrier, and checks that all threads
// reach each barrier.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "memory.h"
#include "report.h"
#include "threadgroup.h"

// Generated from the signature of the kernel.
extern "C" void harness_invoke(const uint32_t* position, uint32_t simd_group, uint32_t lane, uint32_t thread);

namespace harness {

Thread threads[kMostThreads];
SimdGroup simd_groups[kMostThreads / kLanes];
uint32_t epoch, position[3], linear_position;
uint64_t barriers;

namespace {

constexpr const char* kWaits[] = {"nothing", "a SIMD operation", "simdgroup_barrier", "threadgroup_barrier",
                                  "the end"};
int lane_order[kLanes], next_lane[kLanes], simd_group_order[kMostThreads / kLanes];
int count;
bool given_up, run_ended;

// The next lane of the SIMD group that can run, or the scheduler.
int successor(int thread) {
  int first = thread / kLanes * kLanes, lane = thread % kLanes;
  for (int other = next_lane[lane]; other != lane; other = next_lane[other])
    if (threads[first + other].wait == Wait::nothing) return first + other;
  return kScheduler;
}

void run_thread() {
  int me = running;
  harness_invoke(position, me / kLanes, me % kLanes, me);
  threads[me].wait = Wait::end;
  switch_to(successor(me));
  abort();  // never reached: no fibre switches to an ended thread
}

int waiting(int first, int last, Wait wait) {
  return static_cast<int>(
      std::count_if(threads + first, threads + last, [=](const Thread& t) { return t.wait == wait; }));
}

std::string where_lanes_wait(int first) {
  std::map<std::tuple<Wait, int>, int> places;
  for (int i = first; i < first + kLanes; i++) {
    const Thread& thread = threads[i];
    places[{thread.wait, thread.wait == Wait::end ? 0 : thread.line}]++;
  }
  std::string text;
  for (const auto& [place, lanes] : places) {
    auto [wait, line] = place;
    char part[96];
    snprintf(part, sizeof part, "%s%d lanes: %s line %d", text.empty() ? "" : "; ", lanes,
             kWaits[static_cast<int>(wait)], line);
    text += part;
  }
  return text;
}

// No lane can run, and some wait for other lanes of their SIMD group.
void resolve(int simd_group) {
  int first = simd_group * kLanes, last = first + kLanes;
  bool one_line = std::all_of(threads + first, threads + last,
                              [&](const Thread& t) { return t.line == threads[first].line; });
  if (waiting(first, last, Wait::simdgroup_barrier) != kLanes || !one_line) {
    report("SIMD group diverges: %s", where_lanes_wait(first).c_str());
    given_up = true;
    return;
  }
  if (threads[first].flags & kThreadgroupMemory) simd_groups[simd_group].epoch++;
  for (int i = first; i < last; i++) threads[i].wait = Wait::nothing;
}

// Runs until all lanes have ended or wait at a threadgroup barrier.
void run_simd_group(int simd_group) {
  int first = simd_group * kLanes, last = first + kLanes;
  while (!given_up) {
    auto ready = std::find_if(lane_order, lane_order + kLanes,
                              [=](int lane) { return threads[first + lane].wait == Wait::nothing; });
    if (ready != lane_order + kLanes)
      switch_to(first + *ready);
    else if (waiting(first, last, Wait::simd_operation) || waiting(first, last, Wait::simdgroup_barrier))
      resolve(simd_group);
    else
      return;
  }
}

// All threads have ended or wait at a threadgroup barrier. Returns whether they may continue.
bool pass_barrier() {
  int arrived = waiting(0, count, Wait::threadgroup_barrier);
  if (arrived == 0) return false;
  const Thread& one = *std::find_if(threads, threads + count,
                                    [](const Thread& t) { return t.wait == Wait::threadgroup_barrier; });
  for (int i = 0; i < count; i++) {
    if (threads[i].wait != Wait::threadgroup_barrier || threads[i].line == one.line) continue;
    report("threadgroup_barrier: some threads are at line %d, others at line %d", one.line, threads[i].line);
    return false;
  }
  if (arrived < count) {
    report("threadgroup_barrier at line %d: reached by %d of %d threads, the others have returned", one.line,
           arrived, count);
    return false;
  }
  if (one.flags & kThreadgroupMemory) epoch++;
  barriers++;
  for (int i = 0; i < count; i++) threads[i].wait = Wait::nothing;
  return true;
}

}  // namespace

void start_run(int seed) {
  run_ended = false;
  barriers = 0;
  for (int i = 0; i < kLanes; i++) lane_order[i] = simd_group_order[i] = i;
  std::mt19937 random(seed);
  if (seed == 1) {
    std::reverse(lane_order, lane_order + kLanes);
    std::reverse(simd_group_order, simd_group_order + kLanes);
  } else if (seed) {
    std::shuffle(lane_order, lane_order + kLanes, random);
    std::shuffle(simd_group_order, simd_group_order + kLanes, random);
  }
  for (int i = 0; i < kLanes; i++) next_lane[lane_order[i]] = lane_order[(i + 1) % kLanes];
}

void run_threadgroup(int thread_count) {
  count = thread_count;
  given_up = false;
  epoch++;
  forget_threadgroup_memory();
  for (int i = 0; i < count; i++) {
    threads[i] = {Wait::nothing, 0, 0};
    start_fibre(i, run_thread);
  }
  for (SimdGroup& group : simd_groups) {
    group.arrived = 0;
    group.mixed = false;
    group.epoch++;
  }
  do {
    for (int simd_group : simd_group_order)
      if (simd_group < count / kLanes) run_simd_group(simd_group);
  } while (!given_up && pass_barrier());
}

void wait_here(Wait wait, int line, int flags) {
  int me = running;
  threads[me] = {wait, line, flags};
  switch_to(successor(me));
  if (given_up) give_up();
}

void end_run() {
  run_ended = true;
  give_up();
}

bool run_has_ended() { return run_ended; }

void give_up() {
  given_up = true;
  threads[running].wait = Wait::end;
  switch_to(kScheduler);
}

}  // namespace harness
