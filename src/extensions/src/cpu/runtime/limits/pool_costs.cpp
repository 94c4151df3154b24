// Regions in which all threads meet: without that, a fast thread would run the items of the others, and the
// region would end before they have started. A thread that does not come in time must not block the rest.
#include "cpu/runtime/limits/pool_costs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/checks.h"
#include "core/divide_up.h"
#include "cpu/interface/cpus.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr const char* kName = "pool_costs";
constexpr int64_t kLongestWait = 20'000'000;  // nanoseconds: several time slices of a busy CPU
constexpr int kMostLate = 60;
constexpr int kRegions = 301, kWakes = 41, kBarrierRegions = 41, kBarriers = 50;
constexpr std::chrono::microseconds kNap{200};
constexpr int kMostNaps = 50;

// Waits without the processor when that takes long: the awaited thread may need this CPU.
template <typename Condition>
void wait_until(Condition condition) {
  for (int spins = 0; !condition(); ++spins) {
    if (spins >= 10'000) std::this_thread::yield();
  }
}

// Where the threads of a region meet once. All of them learn the same: whether all came in time.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  bool all_come() {
    if (arrived_.fetch_add(1) + 1 == threads_) decide(kAllCame);
    const int64_t latest = nanoseconds_now() + kLongestWait;
    wait_until([&] {
      if (verdict_.load() == kOpen && nanoseconds_now() > latest) decide(kTooLate);
      return verdict_.load() != kOpen;
    });
    return verdict_.load() == kAllCame;
  }

 private:
  enum Verdict { kOpen, kAllCame, kTooLate };

  void decide(Verdict verdict) {
    Verdict open = kOpen;
    verdict_.compare_exchange_strong(open, verdict);
  }

  const int threads_;
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) std::atomic<Verdict> verdict_{kOpen};
};

// A sense-reversing barrier: the last thread turns the sense, for which the others wait.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  void wait() {
    const bool sense = sense_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      sense_.store(!sense, std::memory_order_release);
    } else {
      wait_until([&] { return sense_.load(std::memory_order_acquire) != sense; });
    }
  }

 private:
  const int threads_;
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) std::atomic<bool> sense_{false};
};

// The median time of `count` regions, without those for which some thread came too late; before each,
// `prepare`.
template <typename Prepare, typename Region>
double median_time(int count, int threads, Prepare prepare, Region region) {
  std::vector<double> seconds;
  for (int late = 0; static_cast<int>(seconds.size()) < count;) {
    prepare();
    const int64_t begin = nanoseconds_now();
    if (region()) {
      seconds.push_back(static_cast<double>(nanoseconds_now() - begin) * 1e-9);
    } else if (++late > kMostLate) {
      throw std::runtime_error(std::string(kName) + ": fewer than " + std::to_string(threads) +
                               " threads come to a region: other work has them");
    }
  }
  const auto middle = seconds.begin() + count / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

bool meet(int threads) {
  Meeting meeting(threads);
  std::atomic<bool> complete{true};
  parallel_for(threads, threads, [&](int64_t) {
    if (!meeting.all_come()) complete = false;
  });
  return complete;
}

// Whether all threads came, and then passed `kBarriers` barriers.
bool pass_barriers(int threads) {
  Meeting meeting(threads);
  Barrier barrier(threads);
  std::atomic<bool> complete{true};
  parallel_for(threads, threads, [&](int64_t) {
    if (!meeting.all_come()) {
      complete = false;
      return;
    }
    for (int i = 0; i < kBarriers; ++i) barrier.wait();
  });
  return complete;
}

void let_threads_sleep() {
  for (int naps = 0; naps < kMostNaps && has_spinning_thread(); ++naps) std::this_thread::sleep_for(kNap);
}

}  // namespace

PoolCosts pool_costs(int threads) {
  const int most = allowed_cpus();
  if (threads < 1 || threads > most)
    reject(kName, "threads", std::to_string(threads),
           "1 to " + std::to_string(most) + ", the CPUs that this process may use");
  const auto nothing = [] {};
  const auto meeting = [&] { return meet(threads); };
  PoolCosts costs{};
  {
    const Team team(threads);
    costs.region = median_time(kRegions, threads, nothing, meeting);
    const double all = median_time(kBarrierRegions, threads, nothing, [&] { return pass_barriers(threads); });
    costs.barrier = std::max(all - costs.region, 0.0) / kBarriers;
  }
  costs.wake = median_time(kWakes, threads, let_threads_sleep, meeting);
  return costs;
}

}  // namespace tiny_llm_ext::cpu
