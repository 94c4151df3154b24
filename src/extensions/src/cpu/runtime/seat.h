// What a caller and a thread of the pool share, and how each waits for the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/divide_up.h"

namespace tiny_llm_ext::cpu {

// How long an idle thread, or a caller whose threads are finishing, spins before it sleeps. Measured: waking
// a thread takes up to 45 us, the gap between two calls from Python is 30 us, and two spinning threads slow a
// call on the other CPUs by up to 20 %.
constexpr std::chrono::microseconds kSpinTime{100};

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Orders all before it, as others see it, before all after it: of thread sanitizer's accesses, too, which
// knows no fences but needs none here.
inline void full_fence() {
#pragma GCC diagnostic push
#ifndef __clang__  // does not know it
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
}

// Spins until `condition` holds, at most for kSpinTime. Returns whether it holds.
template <typename Condition>
bool spin_until(Condition condition) {
  std::optional<std::chrono::steady_clock::time_point> begin;
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause();
    }
    const auto now = std::chrono::steady_clock::now();
    if (!begin) begin = now;
    if (now - *begin >= kSpinTime) return false;
  }
}

// The items of a thread: [next, end), in one word, so that none is seen without the other. It orders no other
// memory: a thread sees the range of its job since it has taken the offer.
class Range {
 public:
  void set(int64_t begin, int64_t end) { word_.store(end << 32 | begin, std::memory_order_relaxed); }

  int64_t left() const {
    const int64_t word = word_.load(std::memory_order_relaxed);
    return std::max<int64_t>((word >> 32) - (word & kLow), 0);
  }

  // The next item, or -1. A thread looks before it adds: `next` passes `end` by less than the threads.
  int64_t take() {
    if (left() == 0) return -1;
    const int64_t word = word_.fetch_add(1, std::memory_order_relaxed);
    return (word & kLow) < (word >> 32) ? word & kLow : -1;
  }

  void clear() { word_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr int64_t kLow = 0xffffffff;
  std::atomic<int64_t> word_{0};
};

class Job;

enum State : uint32_t {
  idle,     // watches for an offer
  offered,  // the caller may take the offer back
  taken,    // runs the job
  awaited,  // runs the job, while its caller sleeps
};

// What a caller and a thread of the pool say to each other, in a cache line of their own.
struct alignas(kCacheLine) Seat {
  std::atomic<uint32_t> state{idle};
  std::atomic<uint32_t> asleep{false};  // or about to: who has an offer for it, or soon will, wakes it
  int rank = 0;                         // in the job
  Range range;
  Job* job = nullptr;
  int64_t busy = 0;  // nanoseconds in the job, where that is measured

  // Returns when this thread has no part in the job any more.
  void withdraw_or_wait() {
    uint32_t was = offered;
    if (state.load(std::memory_order_relaxed) == offered && state.compare_exchange_strong(was, idle)) return;
    const auto ended = [this] {
      const uint32_t now = state.load(std::memory_order_acquire);
      return now != taken && now != awaited;
    };
    if (spin_until(ended)) return;
    was = taken;
    state.compare_exchange_strong(was, awaited);
    while (!ended()) state.wait(awaited);
  }
};

}  // namespace tiny_llm_ext::cpu
