// The thread pool: every item runs exactly once; with several callers, nested, after exceptions and in a
// forked child.
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/scratch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

// While true, allocations of this thread fail, except for objects with extended alignment.
thread_local bool out_of_memory = false;

void* operator new(size_t bytes) {
  void* memory = out_of_memory ? nullptr : std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

// Not inline: GCC 12 would warn that the memory of a `new` is freed.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tiny_llm_ext::tests {
namespace {

using cpu::parallel_for;
using cpu::parallel_ranges;

constexpr int kMostThreads = 16;  // more than the CPUs of most machines: threads take turns

// Whether each item ran once. Plain ints, so that the thread sanitizer sees missing synchronization.
bool each_item_once(int64_t items, int threads, decltype(parallel_for)& parallel = parallel_for) {
  std::vector<int> calls(items, 0);
  parallel(items, threads, [&](int64_t item) { ++calls[item]; });
  for (int count : calls) {
    if (count != 1) return false;
  }
  return true;
}

// The call would start threads, for which there is no memory.
void test_a_call_without_the_threads_that_cannot_start() {
  parallel_for(2, 2, [](int64_t) {});
  std::vector<int> calls(8, 0);
  const std::function<void(int64_t)> count = [&](int64_t item) { ++calls[item]; };
  out_of_memory = true;
  try {
    parallel_for(8, 8, count);
    const cpu::Team team(8);
    parallel_for(8, 8, [](int64_t) {});
  } catch (const std::bad_alloc&) {
    calls.clear();
  }
  out_of_memory = false;
  check(calls == std::vector<int>(8, 1), "a call runs its items without the threads that cannot start");
}

void test_every_item_runs_once() {
  for (int64_t items : {0, 1, 2, 3, 7, 100, 10000}) {
    for (int threads : {0, 1, 2, 3, 8}) {
      const std::string text = std::to_string(items) + ", threads " + std::to_string(threads);
      check(each_item_once(items, threads), "items " + text);
      check(each_item_once(items, threads, parallel_ranges), "items in ranges " + text);
    }
  }
}

void test_many_calls_in_a_row(int calls) {
  int wrong = 0;
  for (int i = 0; i < calls; ++i) wrong += !each_item_once(1 + i % 9, 2 + i % 3);
  check(wrong == 0, "calls in a row that went wrong: " + std::to_string(wrong));
}

// Whether the condition holds within ten seconds.
template <typename Condition>
bool becomes_true(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return condition();
}

void test_threads_of_a_team_are_woken_and_sleep_again() {
  const auto all_sleep = [] { return !cpu::has_spinning_thread(); };
  check(becomes_true(all_sleep), "idle threads go to sleep");
  // Again and again: on a busy machine they may sleep again before this thread looks.
  check(becomes_true([] {
          const cpu::Team team(3);
          return cpu::has_spinning_thread();
        }),
        "the threads of a team are woken");
  {
    const cpu::Team team(3);
    check(each_item_once(100, 3), "they work");
    check(becomes_true(all_sleep), "a team that does nothing sleeps");
    check(each_item_once(100, 3), "and works again");
    const cpu::Team inner(2);
    check(each_item_once(100, 3), "a team within a team is that team");
  }
  check(becomes_true(all_sleep), "they sleep afterwards");
}

void test_items_start_from_zero_upwards() {
  std::vector<int64_t> order;
  parallel_for(1000, 1, [&](int64_t item) { order.push_back(item); });
  bool ascending = true;
  for (size_t i = 0; i < order.size(); ++i) ascending = ascending && order[i] == static_cast<int64_t>(i);
  check(ascending, "ascending on one thread");
  std::atomic<int64_t> next{0};
  std::atomic<bool> far_ahead{false};
  parallel_for(1000, 3, [&](int64_t item) {
    if (item > next.fetch_add(1) + 3) far_ahead = true;
  });
  check(!far_ahead, "no item starts before those below it");
}

// The first item of each range waits for those of the others: until then no thread may start another item.
void test_each_thread_starts_with_its_own_range() {
  constexpr int kThreads = 3, kRange = 100;
  std::atomic<int> begun{0}, too_early{0}, late{0};
  parallel_ranges(kThreads * kRange, kThreads, [&](int64_t item) {
    if (item % kRange != 0) {
      too_early += begun < kThreads;
      return;
    }
    ++begun;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (begun < kThreads && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    late += begun < kThreads;
  });
  check(too_early == 0 && late == 0, "each thread starts with a range of its own");
}

void test_no_more_threads_than_cpus() {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  cpu::set_most_threads(2);
  const auto work = [&](int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  };
  parallel_for(300, 3000, work);
  {
    const cpu::Team team(1 << 30);
    parallel_for(300, 3000, work);
  }
  check(ids.size() <= 2, "asked for 3000 threads: " + std::to_string(ids.size()) + " worked");
  cpu::set_most_threads(kMostThreads);
}

// Each item blocks until `threads` threads have one: passes only if as many threads run at the same time.
void test_the_given_number_of_threads_runs(int threads) {
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(threads, threads, [&](int64_t) {
    {
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    ++arrived;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (arrived < threads && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  check(static_cast<int>(ids.size()) == threads,
        "threads: " + std::to_string(ids.size()) + ", expected " + std::to_string(threads));
  check(ids.count(std::this_thread::get_id()) == 1, "the caller takes part");
}

// The first call wakes more threads than the second may use; its items sleep, so that they could join.
void test_no_more_threads_than_given() {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int i = 0; i < 20; ++i) {
    ids.clear();
    parallel_for(8, 8, [](int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    parallel_for(8, 2, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    check(ids.size() <= 2, "at most two threads in one call");
  }
}

void test_many_callers(int rounds) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&wrong, rounds, caller] {
      for (int i = 0; i < rounds; ++i) wrong += !each_item_once(5 + caller, 1 + (i + caller) % 4);
    });
  }
  for (std::thread& caller : callers) caller.join();
  check(wrong == 0, "calls from six threads that went wrong: " + std::to_string(wrong));
}

// The exit status of a forked child that runs `work`, or -1 when it hangs for ten seconds.
template <class Work>
int in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    failed = 0;
    _exit(work());
  }
  for (int i = 0; i < 1000; ++i) {
    int status;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    usleep(10000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

// Two calls at the same time. The first keeps its threads until the second has had a helper, without which
// the second would wait for its other item.
void test_two_callers_share_the_threads() {
  parallel_for(3, 3, [](int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
  std::atomic<bool> first_begun{false}, second_done{false};
  std::thread first([&] {
    parallel_for(2, 2, [&](int64_t) {
      first_begun = true;
      becomes_true([&] { return second_done.load(); });
    });
  });
  becomes_true([&] { return first_begun.load(); });
  test_the_given_number_of_threads_runs(2);
  second_done = true;
  first.join();
}

// The only helper works on the first call when the second begins, and joins it before a later item.
void test_a_thread_helps_the_next_call() {
  const int status = in_child([] {
    std::atomic<int> held{0};
    std::atomic<bool> second_begun{false};
    std::thread first([&] {
      parallel_for(2, 2, [&](int64_t) {
        ++held;
        becomes_true([&] { return second_begun.load(); });
      });
    });
    becomes_true([&] { return held == 2; });
    std::atomic<bool> helped{false};
    const auto caller = std::this_thread::get_id();
    parallel_for(10000, 2, [&](int64_t) {
      second_begun = true;
      if (std::this_thread::get_id() != caller) helped = true;
      if (!helped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    first.join();
    return helped ? 0 : 1;
  });
  check(status == 0, "the helper of a finished call joins the other one");
}

void test_nested_calls() {
  std::vector<std::vector<int>> calls(20, std::vector<int>(30, 0));
  parallel_for(20, 3,
               [&](int64_t outer) { parallel_for(30, 3, [&](int64_t inner) { ++calls[outer][inner]; }); });
  bool once = true;
  for (const auto& row : calls) {
    for (int count : row) once = once && count == 1;
  }
  check(once, "nested: every pair once");
}

void test_exceptions(int rounds, decltype(parallel_for)& parallel) {
  for (int i = 0; i < rounds; ++i) {
    for (int threads : {1, 2, 4}) {
      std::atomic<int> done{0};
      check_throws<std::runtime_error>("item 7", [&] {
        parallel(100000, threads, [&](int64_t item) {
          if (item == 7) throw std::runtime_error("item 7");
          if (item > 7) std::this_thread::sleep_for(std::chrono::microseconds(100));  // 10 s for all
          ++done;
        });
      });
      check(done < 50000, "after an exception no further items run");
    }
    check_throws<std::runtime_error>(
        "each", [&] { parallel(50, 3, [](int64_t) { throw std::runtime_error("each"); }); });
  }
  check(each_item_once(100, 3), "the pool works after exceptions");
}

void test_fork() {
  check(each_item_once(100, 3), "before the fork");
  for (int i = 0; i < 5; ++i) {
    check(in_child([] {
            for (int j = 0; j < 20; ++j) {
              if (!each_item_once(100, 3)) return 1;
            }
            test_the_given_number_of_threads_runs(3);
            return failed;
          }) == 0,
          "a child has its own pool");
  }
  // Forks while another thread runs a job: the mutex of the pool may be locked.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) each_item_once(16, 3);
  });
  for (int i = 0; i < 20; ++i) {
    check(in_child([] { return each_item_once(100, 3) ? 0 : 1; }) == 0, "forked during a job");
  }
  stop = true;
  busy.join();
  check(each_item_once(100, 3), "the parent goes on");
}

void test_scratch() {
  const auto address = [](size_t bytes) { return reinterpret_cast<uintptr_t>(cpu::thread_scratch(bytes)); };
  for (size_t bytes : {1, 64, 100, 4096, 1000001}) {
    char* memory = static_cast<char*>(cpu::thread_scratch(bytes));
    check(reinterpret_cast<uintptr_t>(memory) % 64 == 0, "scratch is aligned to 64");
    memory[0] = memory[bytes - 1] = 1;  // sanitizers see an overflow
  }
  check(address(10) == address(1000001), "scratch is reused when large enough");
  const uintptr_t mine = address(64);
  uintptr_t theirs = mine;
  std::thread([&] { theirs = address(64); }).join();
  check(mine != theirs, "each thread has its own scratch");
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// thread_pool_test ROUNDS [no-fork]
int main(int argc, char** argv) {
  using namespace tiny_llm_ext::tests;
  const int rounds = std::stoi(argv[1]);
  tiny_llm_ext::cpu::set_most_threads(kMostThreads);
  test_a_call_without_the_threads_that_cannot_start();
  test_every_item_runs_once();
  test_many_calls_in_a_row(10 * rounds);
  test_threads_of_a_team_are_woken_and_sleep_again();
  test_items_start_from_zero_upwards();
  test_each_thread_starts_with_its_own_range();
  for (int threads : {2, 3, 5, 9}) test_the_given_number_of_threads_runs(threads);
  test_no_more_threads_than_given();
  test_no_more_threads_than_cpus();
  test_many_callers(rounds);
  test_two_callers_share_the_threads();
  test_nested_calls();
  test_exceptions(rounds / 20 + 1, parallel_for);
  test_exceptions(rounds / 20 + 1, parallel_ranges);
  test_scratch();
  if (argc < 3) {
    test_fork();
    test_a_thread_helps_the_next_call();
  }
  return finish("thread_pool_test");
}
