// The thread pool. The caller works on its own job and never waits for a thread that has not started; jobs of
// several callers share the threads.
#include "cpu/runtime/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/divide_up.h"
#include "cpu/interface/cpus.h"

namespace tiny_llm_ext::cpu {
namespace {

// How long an idle thread, or a caller whose helpers are finishing, spins before it sleeps. Measured: waking
// a thread takes up to 45 us, the gap between two calls from Python is 30 us, and two spinning threads slow a
// call on the other CPUs by up to 20 %.
constexpr std::chrono::microseconds kSpinTime{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until `condition` holds, or until `keep_spinning` has been false for kSpinTime.
template <typename Condition, typename Predicate>
void spin_until(Condition condition, Predicate keep_spinning) {
  auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return;
      pause();
    }
    const auto now = std::chrono::steady_clock::now();
    if (keep_spinning()) {
      deadline = now + kSpinTime;
    } else if (now >= deadline) {
      return;
    }
  }
}

// Whether this thread runs an item of a job: nested calls then run on this thread alone.
thread_local bool in_job = false;

// The items of one call, in contiguous ranges. Lives as long as the call.
class Job {
 public:
  Job(int64_t items, int ranges, const std::function<void(int64_t)>& work) : ranges_(ranges), work_(work) {
    for (int i = 0; i < ranges; ++i) {
      ranges_[i].next = items * i / ranges;
      ranges_[i].end = items * (i + 1) / ranges;
    }
  }

  // Runs items until none is left: those of a range that no thread started with, then those of the other
  // ranges. After an exception no further item is started.
  void run() noexcept {
    const size_t first = started_.fetch_add(1, std::memory_order_relaxed);
    in_job = true;
    try {
      for (size_t i = 0; i < ranges_.size(); ++i) {
        Range& range = ranges_[(first + i) % ranges_.size()];
        for (int64_t item; (item = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;)
          work_(item);
      }
    } catch (...) {
      for (Range& range : ranges_) range.next.store(range.end, std::memory_order_relaxed);
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    in_job = false;
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct alignas(kCacheLine) Range {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  std::vector<Range> ranges_;
  std::atomic<size_t> started_{0};
  const std::function<void(int64_t)>& work_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

class Pool {
 public:
  bool has_spinning_thread() const { return spinning_ > 0; }

  // The number of KeepSpinning objects. While it is above 0, idle threads spin instead of sleeping.
  std::atomic<int>& spin_requests() { return spin_requests_; }

  // Runs the job on this thread and up to `helpers` threads of the pool, as many as other jobs leave free.
  void run(Job& job, int helpers) {
    OpenJob open{job, helpers};
    {
      std::lock_guard lock(mutex_);
      grow(helpers);
      open_jobs_.push_back(&open);
      ++wake_count_;
    }
    notify(helpers);
    job.run();
    // Every item has been started. Helpers that have not started are not waited for: on a loaded machine one
    // may be scheduled milliseconds late.
    std::unique_lock lock(mutex_);
    std::erase(open_jobs_, &open);
    if (open.active == 0) return;
    lock.unlock();
    spin_until([&open] { return open.active == 0; }, [] { return false; });
    lock.lock();
    done_.wait(lock, [&open] { return open.active == 0; });
  }

  // Wakes up to `helpers` threads, before there is a job for them.
  void wake(int helpers) {
    {
      std::lock_guard lock(mutex_);
      grow(helpers);
      ++wake_count_;
    }
    notify(helpers);
  }

 private:
  // A job whose items have not all been started.
  struct OpenJob {
    Job& job;
    int open_slots;  // helpers that may still join
    std::atomic<int> active{0};
  };

  void notify(int helpers) {
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
  }

  void grow(int helpers) noexcept {
    try {
      for (; threads_ < helpers; ++threads_) std::thread([this] { help(); }).detach();
    } catch (const std::exception&) {
      // The system refuses another thread, or memory for it; the threads already started do the work.
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    for (;;) {
      OpenJob* const open = least_helped();
      if (!open) {
        const uint64_t seen = wake_count_;
        lock.unlock();
        ++spinning_;
        spin_until([this, seen] { return wake_count_ != seen; }, [this] { return spin_requests_ > 0; });
        --spinning_;
        lock.lock();
        wake_.wait(lock, [this, seen] { return wake_count_ != seen; });
        continue;
      }
      --open->open_slots;
      ++open->active;
      lock.unlock();
      open->job.run();
      lock.lock();
      open->open_slots = 0;  // all items have been started
      if (--open->active == 0) done_.notify_all();
    }
  }

  // Of the jobs with an open slot, the one with the fewest helpers.
  OpenJob* least_helped() const {
    OpenJob* found = nullptr;
    for (OpenJob* open : open_jobs_) {
      if (open->open_slots > 0 && (!found || open->active < found->active)) found = open;
    }
    return found;
  }

  std::atomic<int> spinning_{0};  // threads that spin, waiting for work
  std::atomic<int> spin_requests_{0};

  std::mutex mutex_;  // guards all below; the atomics are also read without it, to decide when to lock
  std::condition_variable wake_, done_;
  int threads_ = 0;
  std::vector<OpenJob*> open_jobs_;      // oldest first
  std::atomic<uint64_t> wake_count_{0};  // times that threads were woken
};

// Leaked on purpose: its threads sleep until the process ends, so it must never be destroyed.
std::atomic<Pool*> the_pool{nullptr};

// A forked child has only the forking thread. It forgets the parent's pool, whose mutex may be locked, and
// makes its own.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { the_pool = nullptr; });

Pool& pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current) return *current;
  auto fresh = std::make_unique<Pool>();
  if (the_pool.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

// The pool starts no more threads than this: more would only take turns on the CPUs.
int64_t max_threads() {
  static const int64_t max = std::max(16, 4 * allowed_cpus());
  return max;
}

enum class Ranges { one, one_per_thread };

void run_shared(int64_t items, int threads, Ranges ranges, const std::function<void(int64_t)>& work) {
  const auto sharing = static_cast<int>(std::min<int64_t>({items, threads, max_threads()}));
  if (sharing > 1 && !in_job) {
    Job job(items, ranges == Ranges::one ? 1 : sharing, work);
    pool().run(job, sharing - 1);
    job.rethrow();
    return;
  }
  for (int64_t item = 0; item < items; ++item) work(item);
}

}  // namespace

void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  run_shared(items, threads, Ranges::one, work);
}

void parallel_ranges(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  run_shared(items, threads, Ranges::one_per_thread, work);
}

void parallel_rows(int64_t rows, double cost, int threads,
                   const std::function<void(int64_t begin, int64_t end)>& work) {
  // Less work than this does not pay off a second thread. It is less than waking one takes, because threads
  // of the pool often still spin.
  constexpr double kMinNanoseconds = 20e3;
  constexpr double kItemNanoseconds = 5e3;  // work of an item
  if (threads == 1 || rows == 1 || rows * cost < kMinNanoseconds) return work(0, rows);
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(kItemNanoseconds / cost));
  parallel_for(divide_up(rows, count), threads,
               [&](int64_t item) { work(item * count, std::min(rows, (item + 1) * count)); });
}

bool has_spinning_thread() { return pool().has_spinning_thread(); }

KeepSpinning::KeepSpinning(int threads) : requests_(pool().spin_requests()) {
  ++requests_;
  if (has_spinning_thread()) return;
  pool().wake(static_cast<int>(std::min<int64_t>(threads, max_threads())) - 1);
}

KeepSpinning::~KeepSpinning() { --requests_; }

}  // namespace tiny_llm_ext::cpu
