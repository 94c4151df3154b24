// The thread pool. Its threads watch a word of memory each, in which a caller offers them work; one that gets
// none for a while sleeps on that word. There is no lock between a caller and its threads, and a caller never
// waits for a thread that has not started.
#include "cpu/runtime/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/divide_up.h"
#include "cpu/interface/cpus.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/seat.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr int kMostThreads = 256;
constexpr int64_t kMostItems = 1 << 30;  // of a call

// Whether this thread runs an item of a job: nested calls then run on this thread alone.
thread_local bool in_job = false;

// The threads of the pool that a caller has for a while: of the lowest numbers that are free, so that a
// caller alone always has the same ones.
struct Members {
  int wanted = 0, count = 0;
  std::array<Seat*, kMostThreads> seats;
};

thread_local Members* current_team = nullptr;

class Pool {
 public:
  bool has_spinning_thread() const { return awake_ > 0; }

  void join(Members& team, int helpers) {
    ++teams_;
    team.wanted = helpers;
    if (started_ < helpers) grow(helpers);
    resize(team);
  }

  void leave(Members& team) {
    release(team, 0);
    --teams_;
  }

  // Gives a team its share of the threads: what it wants, or an equal part if there are other teams. Between
  // two calls of the team, whose threads must not be given away while they may have items.
  void resize(Members& team) {
    release(team, share_of(team));
    recruit(team);
  }

  // Adds free threads up to the share of the team; also in the middle of a call.
  void recruit(Members& team) {
    const int share = share_of(team);
    for (int word = 0; team.count < share && word < static_cast<int>(free_.size()); ++word) {
      uint64_t free = free_[word].load(std::memory_order_relaxed);
      while (free != 0 && team.count < share) {
        const uint64_t lowest = free & -free;
        if (!free_[word].compare_exchange_weak(free, free & ~lowest, std::memory_order_acquire)) continue;
        free &= ~lowest;
        Seat& seat = seats_[word * kBits + std::countr_zero(lowest)];
        team.seats[team.count++] = &seat;
        wake_if_asleep(seat);
      }
    }
  }

  // Of a thread whose state has changed, or that will soon be offered a job.
  void wake_if_asleep(Seat& seat) {
    if (!seat.asleep.load(std::memory_order_relaxed) || !seat.asleep.exchange(false)) return;
    ++awake_;
    seat.asleep.notify_one();
  }

 private:
  static constexpr int kBits = 64;

  int share_of(const Members& team) const {
    const int teams = teams_.load(std::memory_order_relaxed);
    return teams > 1 ? std::min<int>(team.wanted, divide_up(started_, teams)) : team.wanted;
  }

  void release(Members& team, int share) {
    while (team.count > share) {
      const auto number = static_cast<int>(team.seats[--team.count] - seats_.data());
      free_[number / kBits].fetch_or(uint64_t{1} << number % kBits, std::memory_order_release);
    }
  }

  void grow(int helpers) noexcept {
    std::lock_guard lock(grow_mutex_);
    try {
      while (started_ < helpers) {
        const int number = started_;
        std::thread([this, number] { help(seats_[number]); }).detach();
        ++awake_;
        ++started_;
        free_[number / kBits].fetch_or(uint64_t{1} << number % kBits, std::memory_order_release);
      }
    } catch (const std::exception&) {
      // The system refuses another thread, or memory for it; the threads already started do the work.
    }
  }

  void help(Seat& seat);

  std::array<Seat, kMostThreads> seats_;
  alignas(kCacheLine) std::array<std::atomic<uint64_t>, kMostThreads / kBits> free_{};  // a bit a thread
  std::atomic<int> teams_{0};
  alignas(kCacheLine) std::atomic<int> awake_{0}, started_{0};
  std::mutex grow_mutex_;
};

// Leaked on purpose: its threads sleep until the process ends, so it must never be destroyed.
std::atomic<Pool*> the_pool{nullptr};

// A forked child has only the forking thread. It forgets the parent's pool and makes its own.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  the_pool = nullptr;
  current_team = nullptr;
});

Pool& pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current) return *current;
  auto fresh = std::make_unique<Pool>();
  if (the_pool.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

}  // namespace

// The items of one call. Lives as long as the call.
class Job {
 public:
  static constexpr int kThief = kMostThreads;

  Job(int64_t items, int helpers, bool in_ranges, Members& team, const std::function<void(int64_t)>& work)
      : ranges_((pool().resize(team), in_ranges) ? std::min(helpers, team.count) + 1 : 1),
        team_(team),
        work_(work),
        items_(items),
        most_helpers_(helpers) {
    first_.set(0, begin_of(1));
  }

  // Runs the items on this thread and those of the team; also on threads that the team gets meanwhile.
  void run_all() {
    invite();
    int64_t busy = 0;
    run(0, busy);
    // All lines are on their way before the first is looked at.
    for (int i = 0; i < helpers_; ++i) __builtin_prefetch(team_.seats[i]);
    for (int i = 0; i < helpers_; ++i) team_.seats[i]->withdraw_or_wait();
    if (measured_) keep(busy);
    if (error_) std::rethrow_exception(error_);
  }

  // The part of a thread: of the caller with rank 0, of one that has a range, or with the rank kThief of one
  // that only takes items from the ranges of others.
  void run(int rank, int64_t& busy) noexcept {
    const int64_t begin = measured_ ? nanoseconds_now() : 0;
    in_job = true;
    try {
      if (rank == 0) {
        run_range(first_, true);
        take_from_others(true);
      } else if (rank < ranges_) {
        run_range(range(rank), false);
      } else {
        take_from_others(false);
      }
    } catch (...) {  // no further item is started, but in ranges that the caller offers just now
      for (int i = 0; i < ranges_; ++i) range(i).clear();
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    in_job = false;
    if (measured_) busy += nanoseconds_now() - begin;
  }

 private:
  void run_range(Range& own, bool of_caller) {
    for (int64_t item; (item = own.take()) >= 0;) {
      if (of_caller && helpers_ < most_helpers_) invite();
      work_(item);
    }
  }

  // Items that are left when a thread has done its own: some thread is late, or has not started.
  void take_from_others(bool of_caller) {
    for (;;) {
      int64_t most = 0;
      int from = 0;
      for (int i = 0; i < ranges_; ++i) {
        if (const int64_t left = range(i).left(); left > most) most = left, from = i;
      }
      if (most == 0) return;
      if (of_caller && most > 1) offer_again();
      if (const int64_t item = range(from).take(); item >= 0) work_(item);
    }
  }

  void keep(int64_t busy_of_caller) const {
    Region region = {{}, items_, helpers_ + 1, begin_, nanoseconds_now(), busy_of_caller, busy_of_caller};
    for (int i = 0; i < helpers_; ++i) {
      region.busy += team_.seats[i]->busy;
      region.longest = std::max(region.longest, team_.seats[i]->busy);
    }
    keep_region(region);
  }

  // Offers the job to threads of the team that have no part in it yet. All with a range are among the first.
  void invite() {
    if (team_.count < most_helpers_) pool().recruit(team_);
    const int first = helpers_;
    helpers_ = std::min(team_.count, most_helpers_);
    for (int i = first; i < helpers_; ++i) __builtin_prefetch(team_.seats[i], 1);
    for (int i = first; i < helpers_; ++i) {
      if (i + 1 < ranges_) team_.seats[i]->range.set(begin_of(i + 1), begin_of(i + 2));
      offer(*team_.seats[i], i + 1);
    }
    wake_from(first);
  }

  // To threads that have done their part. They may have done so long ago.
  void offer_again() {
    int first = helpers_;
    for (int i = helpers_ - 1; i >= 0; --i) {
      Seat& seat = *team_.seats[i];
      if (seat.state.load(std::memory_order_acquire) == idle) offer(seat, kThief), first = i;
    }
    wake_from(first);
  }

  void wake_from(int first) {
    if (first == helpers_) return;
    full_fence();
    for (int i = first; i < helpers_; ++i) pool().wake_if_asleep(*team_.seats[i]);
  }

  void offer(Seat& seat, int rank) {
    seat.job = this;
    seat.rank = rank;
    if (rank != kThief) seat.busy = 0;
    seat.state.store(offered, std::memory_order_release);
  }

  int64_t begin_of(int rank) const { return items_ * rank / ranges_; }
  Range& range(int rank) { return rank == 0 ? first_ : team_.seats[rank - 1]->range; }

  // In cache lines of their own: what threads write, what they read, and what the caller keeps for itself.
  alignas(kCacheLine) Range first_;  // of the caller; with one range that of all threads
  alignas(kCacheLine) const int ranges_;
  const bool measured_ = keeps_regions();
  Members& team_;
  const std::function<void(int64_t)>& work_;
  alignas(kCacheLine) const int64_t items_;
  const int most_helpers_;
  int helpers_ = 0;  // of the team, those that were offered the job
  const int64_t begin_ = measured_ ? nanoseconds_now() : 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

namespace {

void Pool::help(Seat& seat) {
  const auto is_offered = [&seat] { return seat.state.load(std::memory_order_relaxed) == offered; };
  for (;;) {
    while (!spin_until(is_offered)) {
      seat.asleep = true;
      --awake_;
      full_fence();  // either this thread sees the offer, or the caller sees that it sleeps
      while (seat.asleep && !is_offered()) seat.asleep.wait(true);
      if (seat.asleep.exchange(false)) ++awake_;
    }
    uint32_t was = offered;
    if (!seat.state.compare_exchange_strong(was, taken)) continue;  // taken back
    seat.job->run(seat.rank, seat.busy);
    if (seat.state.exchange(idle) == awaited) seat.state.notify_one();
  }
}

std::atomic<int> most_threads{0};

// More threads than CPUs would only take turns on them.
int threads_of(int64_t threads) {
  if (most_threads == 0) most_threads = allowed_cpus();
  return static_cast<int>(std::min<int64_t>({threads, most_threads, kMostThreads}));
}

// Makes `team` that of this thread. A forked child, which has forgotten it, does not give its threads back.
class Membership {
 public:
  Membership(Members& team, int helpers) : team_(team) {
    pool().join(team, helpers);
    current_team = &team;
  }
  ~Membership() {
    if (current_team != &team_) return;
    current_team = nullptr;
    pool().leave(team_);
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

 private:
  Members& team_;
};

void run_shared(int64_t items, int threads, bool in_ranges, const std::function<void(int64_t)>& work) {
  const int helpers = threads_of(std::min<int64_t>(items, threads)) - 1;
  if (helpers < 1 || in_job) {
    for (int64_t item = 0; item < items; ++item) work(item);
  } else if (items > kMostItems) {
    run_shared(kMostItems, threads, in_ranges, work);
    run_shared(items - kMostItems, threads, in_ranges, [&](int64_t item) { work(kMostItems + item); });
  } else if (current_team) {
    Job(items, std::min(helpers, current_team->wanted), in_ranges, *current_team, work).run_all();
  } else {
    Members team;
    const Membership membership(team, helpers);
    Job(items, helpers, in_ranges, team, work).run_all();
  }
}

}  // namespace

void parallel_for(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  run_shared(items, threads, false, work);
}

void parallel_ranges(int64_t items, int threads, const std::function<void(int64_t)>& work) {
  run_shared(items, threads, true, work);
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

struct Team::State {
  explicit State(int helpers) : membership(members, helpers) {}

  Members members;
  const Membership membership;
};

Team::Team(int threads) {
  const int helpers = threads_of(threads) - 1;
  if (helpers < 1 || in_job || current_team) return;
  try {
    state_ = std::make_unique<State>(helpers);
  } catch (const std::bad_alloc&) {
    // Each call then finds its own threads.
  }
}

Team::~Team() = default;

bool has_spinning_thread() { return pool().has_spinning_thread(); }

void set_most_threads(int threads) { most_threads = threads; }

}  // namespace tiny_llm_ext::cpu
