// What the drivers of the thread pool observe of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
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

inline bool all_sleep() { return !cpu::has_spinning_thread(); }

// Some calls with random items, threads, teams, nested calls and exceptions. Returns how many went wrong.
inline int random_calls(unsigned seed, int rounds) {
  std::mt19937 random(seed);
  const auto below = [&random](int64_t most) { return static_cast<int64_t>(random() % most); };
  std::optional<cpu::Team> team;
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    if (team && below(4) == 0) {
      team.reset();
    } else if (!team && below(4) == 0) {
      team.emplace(below(kMostThreads + 2));
    }
    Parallel& parallel = below(2) == 0 ? parallel_for : parallel_ranges;
    const int64_t items = below(10) == 0 ? below(3000) : below(40);
    const int threads = static_cast<int>(below(kMostThreads + 2));
    const int64_t slow = below(3) == 0 ? below(40) : -1, nested = below(3) == 0 ? below(40) : -1;
    const int64_t thrower = below(6) == 0 ? below(40) : -1;
    const int64_t of_nested = below(40);
    const std::string text = "call " + std::to_string(seed) + " " + std::to_string(i);
    std::vector<int> calls(items, 0);
    bool nested_once = true, thrown = false;
    try {
      parallel(items, threads, [&](int64_t item) {
        ++calls[item];
        if (item == slow) std::this_thread::sleep_for(std::chrono::microseconds(300));
        if (item == nested) nested_once = each_item_once(of_nested, threads, parallel);
        if (item == thrower) throw std::runtime_error(text);
      });
    } catch (const std::runtime_error& error) {
      thrown = error.what() == text;
    }
    const bool throws = thrower >= 0 && thrower < items;
    const auto right = [&](int count) { return count == 1 || (throws && count == 0); };
    const bool once = std::all_of(calls.begin(), calls.end(), right) && (!throws || calls[thrower] == 1);
    wrong += !once || !nested_once || thrown != throws;
  }
  return wrong;
}

}  // namespace tiny_llm_ext::tests
