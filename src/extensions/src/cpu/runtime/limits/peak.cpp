// Doubles the number of steps until a round takes long enough to be timed.
#include "cpu/runtime/limits/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

double measure_peak(const Kernels& kernels, Element element, int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  auto* run = kernels.attention[static_cast<int>(element)].peak;
  std::vector<double> operations(threads);

  constexpr int kRounds = 8;
  const auto begin = Clock::now();
  double best = 0;
  for (int64_t steps = 1000; std::chrono::duration<double>(Clock::now() - begin).count() < seconds;) {
    auto start = Clock::now();
    parallel_for(threads, threads, [&](int64_t item) { operations[item] = run(steps); });
    double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (double count : operations) total += count;
    best = std::max(best, total / elapsed);
    if (elapsed < seconds / (2 * kRounds)) steps *= 2;
  }
  return best;
}

}  // namespace tiny_llm_ext::cpu
