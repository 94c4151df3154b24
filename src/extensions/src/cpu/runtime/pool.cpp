// The thread pool: the caller of a job takes part in it, nobody waits for a thread that has not started, and
// jobs of several callers share the threads.
#include "cpu/runtime/pool.h"

#include <pthread.h>

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
#include <thread>
#include <vector>

#include "core/argument_error.h"
#include "cpu/runtime/cpus.h"

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

// Spins until the condition holds, or it had no reason to stay for kWatch.
template <typename Condition, typename Stay>
void spin_until(Condition condition, Stay stay) {
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

// Whether this thread is working on an item of a job: what it calls there it does alone.
thread_local bool at_work = false;

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
    at_work = true;
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
    at_work = false;
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
  bool watched() const { return watching_ > 0; }

  // While it is not 0, threads that are awake stay so.
  std::atomic<int>& keep_awake() { return keep_awake_; }

  // Runs the job with up to `helpers` threads of the pool, as many as other jobs leave to it.
  void run(Job& job, int helpers) {
    Offer offer{job, helpers};
    {
      std::lock_guard lock(mutex_);
      grow(helpers);
      offers_.push_back(&offer);
      ++published_;
    }
    notify(helpers);
    job.run();
    // Every item has been handed out. Helpers that have not started are not waited for: on a loaded machine
    // one may be scheduled milliseconds late.
    std::unique_lock lock(mutex_);
    std::erase(offers_, &offer);
    if (offer.active == 0) return;
    lock.unlock();
    spin_until([&offer] { return offer.active == 0; }, [] { return false; });
    lock.lock();
    done_.wait(lock, [&offer] { return offer.active == 0; });
  }

  // Wakes up to so many threads, to no job yet.
  void wake(int helpers) {
    {
      std::lock_guard lock(mutex_);
      grow(helpers);
      ++published_;
    }
    notify(helpers);
  }

 private:
  // A job whose items have not all been handed out.
  struct Offer {
    Job& job;
    int open_slots;  // helpers it still takes
    std::atomic<int> active{0};
  };

  void notify(int helpers) {
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
  }

  void grow(int helpers) noexcept {
    try {
      for (; threads_ < helpers; ++threads_) std::thread([this] { help(); }).detach();
    } catch (const std::exception&) {
      // The system refuses another thread, or memory for it; those there are do the work.
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Offer* const offer = least_helped();
      if (!offer) {
        const uint64_t seen = published_;
        lock.unlock();
        ++watching_;
        spin_until([this, seen] { return published_ != seen; }, [this] { return keep_awake_ > 0; });
        --watching_;
        lock.lock();
        wake_.wait(lock, [this, seen] { return published_ != seen; });
        continue;
      }
      --offer->open_slots;
      ++offer->active;
      lock.unlock();
      offer->job.run();
      lock.lock();
      offer->open_slots = 0;  // all items have been handed out
      if (--offer->active == 0) done_.notify_all();
    }
  }

  // Of the jobs that take another helper, the one that has the fewest.
  Offer* least_helped() const {
    Offer* found = nullptr;
    for (Offer* offer : offers_) {
      if (offer->open_slots > 0 && (!found || offer->active < found->active)) found = offer;
    }
    return found;
  }

  std::atomic<int> watching_{0};  // helpers that are awake and idle
  std::atomic<int> keep_awake_{0};

  std::mutex mutex_;  // guards all below; the atomics are also looked at without it, to decide when to lock
  std::condition_variable wake_, done_;
  int threads_ = 0;
  std::vector<Offer*> offers_;  // the oldest first
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
  if (sharing > 1 && !at_work) {
    Job job(items, stretches == Stretches::one ? 1 : sharing, work);
    pool().run(job, sharing - 1);
    job.rethrow();
    return;
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
  pool().wake(static_cast<int>(std::min<int64_t>(threads, most_threads())) - 1);
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
