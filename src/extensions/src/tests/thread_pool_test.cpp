// The thread pool under one caller: every item runs exactly once, on as many threads as given, also nested
// and after exceptions.
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/scratch.h"

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "check.h"
#include "pool_checks.h"

// While true, allocations of this thread fail, except for objects with extended alignment. None of these
// functions is inline: GCC 12 would warn of a `new` whose memory is freed, or that gets it from malloc.
thread_local bool out_of_memory = false;

[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = out_of_memory ? nullptr : std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tiny_llm_ext::tests {
namespace {

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

// More items than a range can count. All but some of the first are left out after an exception.
void test_more_items_than_memory_could_hold() {
  for (Parallel* parallel : {&parallel_for, &parallel_ranges}) {
    std::atomic<int> begun{0}, wrong{0};
    check_throws<std::runtime_error>("enough", [&] {
      (*parallel)(std::numeric_limits<int64_t>::max(), kMostThreads, [&](int64_t item) {
        if (item < 0 || item >= int64_t{1} << 40) ++wrong;
        if (++begun > 1000) throw std::runtime_error("enough");
      });
    });
    check(wrong == 0, "wrong items of a huge call: " + std::to_string(wrong));
  }
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

void test_the_given_number_of_threads_runs() {
  for (int threads : {2, 3, 5, 9}) {
    const auto ids = threads_that_run(threads);
    check(static_cast<int>(ids.size()) == threads,
          "threads: " + std::to_string(ids.size()) + ", expected " + std::to_string(threads));
    check(ids.count(std::this_thread::get_id()) == 1, "the caller takes part");
  }
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

void test_exceptions(int rounds, Parallel& parallel) {
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

// thread_pool_test ROUNDS
int main(int, char** argv) {
  using namespace tiny_llm_ext::tests;
  const int rounds = std::stoi(argv[1]);
  tiny_llm_ext::cpu::set_most_threads(kMostThreads);
  test_a_call_without_the_threads_that_cannot_start();
  test_every_item_runs_once();
  test_many_calls_in_a_row(10 * rounds);
  test_more_items_than_memory_could_hold();
  test_items_start_from_zero_upwards();
  test_each_thread_starts_with_its_own_range();
  test_the_given_number_of_threads_runs();
  test_no_more_threads_than_given();
  test_no_more_threads_than_cpus();
  test_nested_calls();
  test_exceptions(rounds / 20 + 1, parallel_for);
  test_exceptions(rounds / 20 + 1, parallel_ranges);
  test_scratch();
  return finish("thread_pool_test");
}
