// The thread pool in forked children: after a fork, with one CPU, and with threads that a signal stops.
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "check.h"
#include "pool_checks.h"

namespace tiny_llm_ext::tests {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::this_thread::sleep_for;

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
  // A thread that just starts may hold a lock of the address sanitizer's memory, which the child never gets.
  check(becomes_true(all_sleep), "all threads have started");
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

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() {
  using namespace tiny_llm_ext::tests;
  tiny_llm_ext::cpu::set_most_threads(kMostThreads);
  test_fork();
  test_fork_within_a_team();
  test_a_thread_helps_the_next_call();
  test_no_call_waits_for_a_thread_that_has_not_begun();
  test_one_cpu();
  return finish("pool_fork_test");
}
