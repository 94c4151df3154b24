// The thread pool under several callers at once: teams, random calls, threads that are late.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "check.h"
#include "pool_checks.h"

namespace tiny_llm_ext::tests {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::this_thread::sleep_for;

double seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + time.tv_usec * 1e-6; }

double cpu_seconds_of_process() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double cpu_seconds_of_thread() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void test_threads_of_a_team_are_woken_and_sleep_again() {
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

// Of the time of the process, so that other programs do not matter.
void test_idle_threads_take_no_cpu() {
  const cpu::Team team(kMostThreads);
  for (int i = 0; i < 100; ++i) each_item_once(100, kMostThreads);
  const double begin = cpu_seconds_of_process();
  sleep_for(milliseconds(1000));
  const double taken = cpu_seconds_of_process() - begin;
  check(taken < 0.05, "CPU seconds in an idle second: " + std::to_string(taken));
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

// Two calls at the same time. The first keeps its threads until the second has had a helper, without which
// the second would wait for its other item.
void test_two_callers_share_the_threads() {
  std::atomic<bool> first_begun{false}, second_done{false};
  std::thread first([&] {
    parallel_for(2, 2, [&](int64_t) {
      first_begun = true;
      becomes_true([&] { return second_done.load(); });
    });
  });
  becomes_true([&] { return first_begun.load(); });
  check(threads_that_run(2).size() == 2, "a second caller has a thread of its own");
  second_done = true;
  first.join();
}

// A team has all threads; of two, each has half from its next call on, and the one that is left has all
// again.
void test_teams_share_the_threads() {
  constexpr int kHelpers = kMostThreads - 1, kHalf = (kHelpers + 1) / 2;
  std::optional<cpu::Team> first(kMostThreads);
  check(threads_that_run(kMostThreads).size() == kMostThreads, "a team alone has all threads");
  std::atomic<bool> second_begun{false}, first_shares{false}, first_ended{false};
  size_t of_second_beside = 0, of_second_alone = 0;
  std::thread other([&] {
    const cpu::Team second(kMostThreads);
    second_begun = true;
    becomes_true([&] { return first_shares.load(); });
    of_second_beside = threads_that_run(1 + kHelpers - kHalf).size();
    becomes_true([&] { return first_ended.load(); });
    of_second_alone = threads_that_run(kMostThreads).size();
  });
  becomes_true([&] { return second_begun.load(); });
  check(threads_that_run(1 + kHalf).size() == 1 + kHalf, "the first team keeps a half");
  first_shares = true;
  check(threads_that_run(1 + kHalf).size() == 1 + kHalf, "also while the second works");
  first.reset();
  first_ended = true;
  other.join();
  check(of_second_beside == 1 + kHelpers - kHalf, "the second team has the other half");
  check(of_second_alone == kMostThreads, "and all after the first has ended");
}

// Two more callers lower the share of the second in the middle of its call. The second's threads have items
// then, and stay until these are done: else the others would be given threads that work for the second, which
// would return before they are done.
void test_threads_stay_until_their_call_ends() {
  each_item_once(kMostThreads, kMostThreads);                      // starts all threads
  constexpr int kHelpers = kMostThreads / 2;                       // of the second caller, beside the first
  const auto of_low_numbers = threads_that_run(2 + kHelpers / 2);  // the second would give away the others
  std::atomic<bool> first_begun{false}, end_first{false}, end_others{false}, go_on{false};
  std::atomic<int> others_begun{0}, begun{0}, done{0};
  std::thread first([&] {
    parallel_for(2, 2, [&](int64_t) {
      first_begun = true;
      becomes_true([&] { return end_first.load(); });
    });
  });
  becomes_true([&] { return first_begun.load(); });
  std::vector<std::thread> others;
  int of_caller = 0;
  const auto caller = std::this_thread::get_id();
  parallel_for(kHelpers + 2, kMostThreads, [&](int64_t) {
    if (std::this_thread::get_id() != caller) {
      ++begun;
      becomes_true([&] { return go_on.load(); });
      if (of_low_numbers.count(std::this_thread::get_id()) == 0) sleep_for(milliseconds(100));
    } else if (++of_caller == 1) {
      becomes_true([&] { return begun == kHelpers; });
      for (int i = 0; i < 2; ++i) {
        others.emplace_back([&] {
          std::atomic<bool> counted{false};
          parallel_for(1000, kMostThreads, [&](int64_t) {
            if (!counted.exchange(true)) ++others_begun;
            if (!end_others) sleep_for(milliseconds(1));
          });
          go_on = true;
        });
      }
      becomes_true([&] { return others_begun == 2; });
    } else {
      sleep_for(milliseconds(20));  // the others ask for more threads at each of their items
      end_others = true;
    }
    ++done;
  });
  check(done == kHelpers + 2, "a call returned after " + std::to_string(done) + " items");
  go_on = end_first = true;
  first.join();
  for (std::thread& other : others) other.join();
  becomes_true([&] { return done == kHelpers + 2; });
}

// One thread is held up in its first item when the other has done its range and sleeps: it is woken to share
// the rest.
void test_a_thread_that_is_done_is_woken_for_the_items_of_another() {
  constexpr int kRange = 100;
  cpu::set_most_threads(3);
  std::atomic<bool> begun{false}, shared{false};
  const auto caller = std::this_thread::get_id();
  parallel_ranges(3 * kRange, 3, [&](int64_t item) {
    if (item == 0) {
      becomes_true([&] { return begun.load(); });
      sleep_for(milliseconds(20));  // 200 times as long as a thread spins
    } else if (item == kRange) {
      begun = true;
      becomes_true([&] { return shared.load(); });
    } else if (item > kRange && item < 2 * kRange) {
      if (std::this_thread::get_id() != caller) shared = true;
      if (!shared) sleep_for(milliseconds(1));
    }
  });
  check(shared, "a sleeping thread takes items of one that is held up");
  cpu::set_most_threads(kMostThreads);
}

// A call waits for the item of a thread that is held up, and only for that: the others do all the rest. It
// sleeps meanwhile.
void test_a_call_sleeps_while_a_thread_is_held_up() {
  constexpr int kItems = 300;
  for (Parallel* parallel : {&parallel_for, &parallel_ranges}) {
    std::atomic<bool> held{false};
    std::atomic<int> done{0};
    int others = 0;
    const auto caller = std::this_thread::get_id();
    const double begin = cpu_seconds_of_thread();
    (*parallel)(kItems, 3, [&](int64_t) {
      if (std::this_thread::get_id() == caller) {
        becomes_true([&] { return held.load(); });
      } else if (!held.exchange(true)) {
        becomes_true([&] { return done == kItems - 1; });
        others = done;
        sleep_for(milliseconds(500));
      }
      ++done;
    });
    const double taken = cpu_seconds_of_thread() - begin;
    check(done == kItems && others == kItems - 1, "the other threads do the other items");
    check(taken < 0.25, "CPU seconds of a caller that waits for half a second: " + std::to_string(taken));
  }
}

void test_random_calls(int rounds) {
  for (int most : {2, 3, kMostThreads}) {
    cpu::set_most_threads(most);
    for (int count = 1; count <= 6; ++count) {
      std::atomic<int> wrong{0};
      std::vector<std::thread> callers;
      for (int caller = 0; caller < count; ++caller)
        callers.emplace_back(
            [&, caller] { wrong += random_calls(1000 * most + 10 * count + caller, rounds); });
      for (std::thread& caller : callers) caller.join();
      check(wrong == 0, std::to_string(count) + " random callers, " + std::to_string(most) +
                            " threads: " + std::to_string(wrong) + " calls went wrong");
    }
  }
  cpu::set_most_threads(kMostThreads);
}

// Callers that never end. What is static is destroyed while they and their threads go on.
void leave_calls_behind() {
  static std::atomic<int> begun{0};
  for (unsigned caller = 0; caller < 2; ++caller) {
    std::thread([caller] {
      for (unsigned call = caller;; call += 2) random_calls(call, 10), ++begun;
    }).detach();
  }
  check(becomes_true([] { return begun > 2; }), "callers that never end");
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// pool_callers_test ROUNDS
int main(int, char** argv) {
  using namespace tiny_llm_ext::tests;
  const int rounds = std::stoi(argv[1]);
  tiny_llm_ext::cpu::set_most_threads(kMostThreads);
  test_many_callers(rounds);
  test_threads_of_a_team_are_woken_and_sleep_again();
  test_two_callers_share_the_threads();
  test_threads_stay_until_their_call_ends();
  test_teams_share_the_threads();
  test_a_thread_that_is_done_is_woken_for_the_items_of_another();
  test_a_call_sleeps_while_a_thread_is_held_up();
  test_random_calls(rounds);
  test_idle_threads_take_no_cpu();
  leave_calls_behind();
  return finish("pool_callers_test");
}
