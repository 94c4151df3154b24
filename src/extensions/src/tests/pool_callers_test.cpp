// The thread pool under several callers at once: teams, random calls, threads that are late, forks.
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

bool all_sleep() { return !cpu::has_spinning_thread(); }

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
  check(becomes_true(all_sleep), "idle threads sleep");
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
  each_item_once(kMostThreads, kMostThreads);  // starts all threads
  constexpr int kHelpers = kMostThreads / 2;   // of the second caller, beside the first
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
    } else if (++of_caller == 1) {
      becomes_true([&] { return begun == kHelpers; });
      for (int i = 0; i < 2; ++i) {
        others.emplace_back([&] {
          std::atomic<bool> counted{false};
          parallel_for(1000, kMostThreads, [&](int64_t) {
            if (!counted.exchange(true)) ++others_begun;
            if (!end_others) sleep_for(milliseconds(1));
          });
          sleep_for(milliseconds(100));  // in which the second would return too early
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

// Some calls with random items, threads, teams, nested calls and exceptions. Returns how many went wrong.
int random_calls(unsigned seed, int rounds) {
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
        if (item == slow) sleep_for(microseconds(300));
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
      if (!helped) sleep_for(milliseconds(1));
    });
    first.join();
    return helped ? 0 : 1;
  });
  check(status == 0, "the helper of a finished call joins the other one");
}

std::atomic<bool> stopped{false}, may_go_on{false};

// Runs on the thread that is to be stopped, for ten seconds at most.
void stop_this_thread(int) {
  stopped = true;
  for (int i = 0; i < 10000 && !may_go_on; ++i) usleep(1000);
  stopped = false;
}

// The only helper is stopped by a signal while it sleeps, and while it spins or sleeps after a call. Calls
// end before it goes on.
void test_no_call_waits_for_a_thread_that_has_not_begun() {
  const int status = in_child([] {
    pthread_t helper{};
    std::atomic<int> arrived{0};
    const auto caller = std::this_thread::get_id();
    parallel_for(2, 2, [&](int64_t) {
      if (std::this_thread::get_id() != caller) helper = pthread_self();
      ++arrived;
      becomes_true([&] { return arrived == 2; });
    });
    signal(SIGUSR1, stop_this_thread);
    for (int i = 0; i < 10; ++i) {
      if (i == 0) becomes_true(all_sleep);
      may_go_on = false;
      if (pthread_kill(helper, SIGUSR1) != 0 || !becomes_true([] { return stopped.load(); })) return 1;
      for (int items : {2, 3, 100}) {
        if (!each_item_once(items, 2) || !each_item_once(items, 2, parallel_ranges)) return 2;
      }
      if (!stopped) return 3;
      may_go_on = true;
      if (!becomes_true([] { return !stopped; })) return 4;
      if (threads_that_run(2).size() != 2) return 5;
    }
    return 0;
  });
  check(status == 0, "calls while the helper is stopped: " + std::to_string(status));
}

// More threads than CPUs take turns; and without a number the caller is alone on its CPU.
void test_one_cpu() {
#ifdef __linux__
  const int status = in_child([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) return 1;
    for (int i = 0; i < 100; ++i) {
      if (!each_item_once(200, kMostThreads) || !each_item_once(200, kMostThreads, parallel_ranges)) return 2;
    }
    if (threads_that_run(kMostThreads).size() != kMostThreads) return 3;
    cpu::set_most_threads(0);  // as many as CPUs are allowed
    bool alone = true;
    const auto caller = std::this_thread::get_id();
    parallel_for(100, kMostThreads, [&](int64_t) {
      if (std::this_thread::get_id() != caller) alone = false;
      sleep_for(microseconds(100));
    });
    return alone ? 0 : 4;
  });
  check(status == 0, "calls on one CPU: " + std::to_string(status));
#endif
}

void test_fork() {
  check(each_item_once(100, 3), "before the fork");
  for (int i = 0; i < 5; ++i) {
    check(in_child([] {
            for (int j = 0; j < 20; ++j) {
              if (!each_item_once(100, 3)) return 1;
            }
            return threads_that_run(3).size() == 3 ? 0 : 1;
          }) == 0,
          "a child has its own pool");
  }
  // Forks while other threads run jobs, and have teams: the mutex of the pool may be locked.
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (unsigned caller = 0; caller < 3; ++caller) {
    busy.emplace_back([&stop, caller] {
      for (unsigned i = 0; !stop; ++i) random_calls(10 * i + caller, 10);
    });
  }
  for (int i = 0; i < 20; ++i) {
    check(in_child([] { return each_item_once(100, 3) ? 0 : 1; }) == 0, "forked during a job");
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  check(each_item_once(100, 3), "the parent goes on");
}

// The child has none of the team's threads, makes teams of its own, and does not give back what it lacks.
void test_fork_within_a_team() {
  std::optional<cpu::Team> team(3);
  check(each_item_once(100, 3), "a team before the fork");
  const int status = in_child([&team] {
    if (threads_that_run(4).size() != 4) return 1;  // a call of the team would have three
    std::optional<cpu::Team> inner(4);
    team.reset();
    if (threads_that_run(4).size() != 4) return 2;
    inner.reset();
    return random_calls(1, 200);
  });
  check(status == 0, "a child of a team: " + std::to_string(status));
  check(threads_that_run(3).size() == 3, "the team of the parent goes on");
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

// pool_callers_test ROUNDS [no-fork]
int main(int argc, char** argv) {
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
  if (argc < 3) {
    test_fork();
    test_fork_within_a_team();
    test_a_thread_helps_the_next_call();
    test_no_call_waits_for_a_thread_that_has_not_begun();
    test_one_cpu();
  }
  leave_calls_behind();
  return finish("pool_callers_test");
}
