// The thread pool: one job at a time, the caller takes part, nobody waits for a thread that has not started.
#include "cpu/pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "argument_error.h"

namespace tiny_llm_ext::cpu {
namespace {

// How long an idle thread that is not kept awake, or a caller whose helpers are finishing, looks before it
// sleeps. A sleeper needs 45 us to wake up, calls from Python come about 30 us apart; two busy loops beside
// it slow a call by a fifth at most.
constexpr std::chrono::microseconds kWatch{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Looks so long, and as long as it is to stay.
template <typename Condition, typename Stay>
void watch_for(Condition condition, Stay stay) {
  auto deadline = std::chrono::steady_clock::now() + kWatch;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return;
      pause();
    }
    const auto now = std::chrono::steady_clock::now();
    if (stay()) {
      deadline = now + kWatch;
    } else if (now >= deadline) {
      return;
    }
  }
}

// The items of one call, in stretches of neighbours. Lives as long as the call.
class Job {
 public:
  Job(int64_t items, int stretches, const std::function<void(int64_t)>& work)
      : stretches_(stretches), work_(work) {
    for (int i = 0; i < stretches; ++i) {
      stretches_[i].next = items * i / stretches;
      stretches_[i].end = items * (i + 1) / stretches;
    }
  }

  // Takes items until none is left: those of a stretch that nobody has begun with, then the others'. After
  // an exception no further item is handed out.
  void run() noexcept {
    const size_t first = begun_.fetch_add(1, std::memory_order_relaxed);
    try {
      for (size_t i = 0; i < stretches_.size(); ++i) {
        Stretch& stretch = stretches_[(first + i) % stretches_.size()];
        for (int64_t item; (item = stretch.next.fetch_add(1, std::memory_order_relaxed)) < stretch.end;)
          work_(item);
      }
    } catch (...) {
      for (Stretch& stretch : stretches_) stretch.next.store(stretch.end, std::memory_order_relaxed);
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct alignas(64) Stretch {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  std::vector<Stretch> stretches_;
  std::atomic<size_t> begun_{0};
  const std::function<void(int64_t)>& work_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

class Pool {
 public:
  // The right to run one job. Empty when a job is under way, in this thread or another.
  class Turn {
   public:
    explicit Turn(Pool& pool)
        : pool_(pool.busy_.exchange(true, std::memory_order_acquire) ? nullptr : &pool) {}
    ~Turn() {
      if (pool_) pool_->busy_.store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return pool_ != nullptr; }

    // Wakes up to so many threads of the pool, to no job yet.
    void wake(int helpers) const { pool_->wake(helpers); }

    // Runs the job with up to `helpers` threads of the pool.
    void run(Job& job, int helpers) const { pool_->run(job, helpers); }

   private:
    Pool* pool_;
  };

  bool watched() const { return watching_ > 0; }

  // While it is not 0, threads that are awake stay so.
  std::atomic<int>& keep_awake() { return keep_awake_; }

 private:
  void run(Job& job, int helpers) {
    grow(helpers);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      seats_ = helpers;
      ++published_;
    }
    notify(helpers);
    job.run();
    // Every item has been handed out. Who has not sat down by now is not waited for: on a loaded machine a
    // helper may be scheduled milliseconds late.
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    if (seated_ == 0) return;
    lock.unlock();
    watch_for([this] { return seated_ == 0; }, [] { return false; });
    lock.lock();
    done_.wait(lock, [this] { return seated_ == 0; });
  }

  void wake(int helpers) {
    grow(helpers);
    {
      std::lock_guard lock(mutex_);
      ++published_;
    }
    notify(helpers);
  }

  void notify(int helpers) {
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
  }

  void grow(int helpers) {
    try {
      for (; threads_ < helpers; ++threads_) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
      // The system refuses another thread; those there are do the work.
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0;; seen = published_) {
      if (published_ == seen) {
        lock.unlock();
        ++watching_;
        watch_for([this, seen] { return published_ != seen; }, [this] { return keep_awake_ > 0; });
        --watching_;
        lock.lock();
        wake_.wait(lock, [this, seen] { return published_ != seen; });
      }
      if (!job_ || seats_ == 0) continue;
      Job& job = *job_;
      --seats_;
      ++seated_;
      lock.unlock();
      job.run();
      lock.lock();
      if (--seated_ == 0) done_.notify_one();
    }
  }

  std::atomic<bool> busy_{false};
  std::atomic<int> watching_{0};  // helpers that are awake and idle
  std::atomic<int> keep_awake_{0};
  int threads_ = 0;  // touched by who has the turn only

  std::mutex mutex_;  // guards all below; the atomics are also looked at without it, to decide when to lock
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int seats_ = 0;  // helpers the job still takes
  std::atomic<int> seated_{0};
  std::atomic<uint64_t> published_{0};
};

// Leaked on purpose: its threads sleep until the process ends, whatever the order of destruction then.
std::atomic<Pool*> the_pool{nullptr};

// Only the forking thread lives on in a child. The parent's pool, perhaps caught with its mutex locked, is
// forgotten.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { the_pool = nullptr; });

Pool& pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current) return *current;
  auto fresh = std::make_unique<Pool>();
  if (the_pool.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

int allowed_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

// More threads than this only take turns: what a caller asks for beyond it is not started.
int64_t most_threads() {
  static const int64_t most = std::max(16, 4 * allowed_cpus());
  return most;
}

int threads_from_environment() {
  const char* given = std::getenv("TINY_LLM_THREADS");
  if (!given) return allowed_cpus();
  const std::string text = given;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1) {
    throw ArgumentError("", "TINY_LLM_THREADS", "'" + text + "'", "a positive integer");
  }
  return threads;
}

enum class Stretches { one, of_each_thread };

void share_out(int64_t items, int threads, Stretches stretches, const std::function<void(int64_t)>& work) {
  const auto sharing = static_cast<int>(std::min<int64_t>({items, threads, most_threads()}));
  if (sharing > 1) {
    if (const Pool::Turn turn(pool()); turn) {
      Job job(items, stretches == Stretches::one ? 1 : sharing, work);
      turn.run(job, sharing - 1);
      job.rethrow();
      return;
    }
  }
  for (int64_t item = 0; item < items; ++item) work(item);
}

}  // namespace

int default_threads() {
  static const int threads = threads_from_environment();
  return threads;
}

void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  share_out(items, threads, Stretches::one, work);
}

void parallel_stretches(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  share_out(items, threads, Stretches::of_each_thread, work);
}

bool helper_awake() { return pool().watched(); }

Awake::Awake(int threads) : count_(pool().keep_awake()) {
  ++count_;
  if (helper_awake()) return;
  if (const Pool::Turn turn(pool()); turn)
    turn.wake(static_cast<int>(std::min<int64_t>(threads, most_threads())) - 1);
}

Awake::~Awake() { --count_; }

void* thread_scratch(size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t capacity = 0;
  if (!memory || capacity < bytes) {
    capacity = 0;
    memory.reset();
    memory.reset(::operator new(bytes, kAlignment));
    capacity = bytes;
  }
  return memory.get();
}

}  // namespace tiny_llm_ext::cpu
