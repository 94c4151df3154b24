// What the drivers of the thread pool observe of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::tests {

using cpu::parallel_for;
using cpu::parallel_ranges;
using Parallel = decltype(parallel_for);

constexpr int kMostThreads = 16;  // more than the CPUs of most machines: threads take turns

// Whether each item ran once. Plain ints, so that the thread sanitizer sees missing synchronization.
inline bool each_item_once(int64_t items, int threads, Parallel& parallel = parallel_for) {
  std::vector<int> calls(items, 0);
  parallel(items, threads, [&](int64_t item) { ++calls[item]; });
  return std::all_of(calls.begin(), calls.end(), [](int count) { return count == 1; });
}

// Whether the condition holds within ten seconds.
template <typename Condition>
bool becomes_true(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return condition();
}

// The threads that run a call whose items wait for each other: `wanted`, if as many run at the same time.
// Else fewer, after ten seconds.
inline std::set<std::thread::id> threads_that_run(int wanted) {
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(wanted, wanted, [&](int64_t) {
    {
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    ++arrived;
    becomes_true([&] { return arrived >= wanted; });
  });
  return ids;
}

}  // namespace tiny_llm_ext::tests
