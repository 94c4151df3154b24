// A pool of threads that share out numbered work items.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tiny_llm_ext::cpu {

// TINY_LLM_THREADS, else the number of CPUs this process may use, see cpus.h. The variable is read at the
// first call; a value that is not a positive integer throws an ArgumentError.
int default_threads();

// Calls work(item) once for every item in [0, items), on the calling thread and up to threads - 1 others,
// in any order but handed out from 0 upwards; returns when all are done. The first exception is rethrown.
// There are never more threads than a few for each CPU, whatever `threads` says.
// Calls from several threads share the pool, which has as many threads as the largest of them asked for: a
// thread that is done with one call helps the one that has the fewest. Within an item, the caller works
// alone.
void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work);

// The same, but each thread that comes begins with a stretch of neighbouring items, and helps with those of
// others, and of threads that have not come, when its own is done: for small items that read memory one
// after the other.
void parallel_stretches(int64_t items, int threads, const std::function<void(int64_t)>& work);

// Whether a thread of the pool looks for work now: one that sleeps takes 45 us to wake up.
bool helper_awake();

// Multiply-adds of some kind that are worth a second thread which is awake, and one which is to be woken.
struct LeastShared {
  double awake, asleep;

  double now() const { return helper_awake() ? awake : asleep; }
};

// While one lives, threads of the pool that are awake stay so, and up to threads - 1 are woken if all sleep:
// for calls that follow each other, each of which alone is not worth waking a thread.
class Awake {
 public:
  explicit Awake(int threads);
  ~Awake();
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

 private:
  std::atomic<int>& count_;  // of those that live
};

// Memory of the calling thread, 64-byte aligned, at least `bytes` large, reused from call to call.
void* thread_scratch(size_t bytes);

}  // namespace tiny_llm_ext::cpu
