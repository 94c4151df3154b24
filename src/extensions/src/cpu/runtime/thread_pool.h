// A thread pool for numbered work items.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tiny_llm_ext::cpu {

// Calls work(item) once for every item in [0, items), on the calling thread and up to threads - 1 others.
// Items start in ascending order; returns when all are done. The first exception is rethrown.
// Whatever `threads` says, no more threads take part than this process has CPUs. Concurrent calls share the
// pool. A call from within an item runs on its thread alone.
void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work);

// The same with work stealing: each thread starts with a contiguous range of items, then takes items from the
// range that has the most left, also from that of a thread that never started. A thread has the same range in
// each call of the same size. For small items that read memory in order.
void parallel_ranges(int64_t items, int threads, const std::function<void(int64_t)>& work);

// Calls work(begin, end) for ranges that together are the rows 0 .. rows - 1, on as many threads as pay off
// for `cost` nanoseconds a row.
void parallel_rows(int64_t rows, double cost, int threads,
                   const std::function<void(int64_t begin, int64_t end)>& work);

// During its lifetime the calls of this thread share up to threads - 1 threads of the pool, which no other
// caller gets: the constructor wakes them, and each call then only writes to memory that they watch. For a
// series of calls, as the operations of a decoder block are. Does nothing inside another team or an item. To
// be destroyed by the thread that made it.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a thread of the pool is awake and waits for work; a sleeping one must be woken first.
bool has_spinning_thread();

// Multiply-adds from which a second thread pays off: one that spins already, or one that must be woken.
struct ParallelThreshold {
  double spinning, sleeping;

  double now() const { return has_spinning_thread() ? spinning : sleeping; }
};

// Lets up to this number of threads take part, whatever the number of CPUs. For tests and measurements, while
// no call runs.
void set_most_threads(int threads);

}  // namespace tiny_llm_ext::cpu
