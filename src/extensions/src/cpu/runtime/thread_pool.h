// A thread pool for numbered work items.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tiny_llm_ext::cpu {

// Calls work(item) once for every item in [0, items), on the calling thread and up to threads - 1 others.
// Items start in ascending order; returns when all are done. The first exception is rethrown.
// The pool never starts more than a few threads per CPU, whatever `threads` says. Concurrent calls share it;
// a thread that finishes one call helps the one that has the fewest threads. A call from within an item runs
// on its thread alone.
void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work);

// The same with work stealing: each thread starts with a contiguous range of items, then takes items from the
// ranges that are left, also from those of threads that never started. For small items that read memory in
// order.
void parallel_ranges(int64_t items, int threads, const std::function<void(int64_t)>& work);

// Calls work(begin, end) for ranges that together are the rows 0 .. rows - 1, on as many threads as pay off
// for `cost` nanoseconds a row.
void parallel_rows(int64_t rows, double cost, int threads,
                   const std::function<void(int64_t begin, int64_t end)>& work);

// Whether a thread of the pool spins, waiting for work; a sleeping one must be woken first.
bool has_spinning_thread();

// Multiply-adds from which a second thread pays off: one that spins already, or one that must be woken.
struct ParallelThreshold {
  double spinning, sleeping;

  double now() const { return has_spinning_thread() ? spinning : sleeping; }
};

// During its lifetime idle threads of the pool spin instead of sleeping; if all sleep, the constructor wakes
// up to threads - 1. For a series of calls, each of which is too small to wake a thread for.
class KeepSpinning {
 public:
  explicit KeepSpinning(int threads);
  ~KeepSpinning();
  KeepSpinning(const KeepSpinning&) = delete;
  KeepSpinning& operator=(const KeepSpinning&) = delete;

 private:
  std::atomic<int>& requests_;  // of the pool at construction: a forked child has another
};

}  // namespace tiny_llm_ext::cpu
