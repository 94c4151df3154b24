// Measures read bandwidth with plain loads, compiled once for each vector width the processor may have.
#include "cpu/runtime/limits/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/checks.h"
#include "core/divide_up.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)
#define EVERY_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_VECTOR_WIDTH
#endif

constexpr size_t kLine = kCacheLine;
constexpr size_t kLanes = kLine / sizeof(uint64_t);
constexpr size_t kUnroll = 4;  // independent sums, so that no addition waits for the previous one

typedef uint64_t Line __attribute__((vector_size(kLine), may_alias));

// The sum keeps the compiler from dropping the loads.
EVERY_VECTOR_WIDTH uint64_t read_lines(const uint64_t* words, size_t lines) {
  Line sums[kUnroll] = {};
  const Line* line = reinterpret_cast<const Line*>(words);
  for (size_t i = 0; i + kUnroll <= lines; i += kUnroll) {
    for (size_t u = 0; u < kUnroll; ++u) sums[u] += line[i + u];
  }
  const Line total = sums[0] + sums[1] + sums[2] + sums[3];
  uint64_t folded = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) folded += total[lane];
  return folded;
}

std::atomic<uint64_t> sink{0};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double read_bandwidth(size_t bytes, int threads, double seconds) {
  constexpr const char* kName = "read_bandwidth";
  if (bytes == 0) reject(kName, "bytes", "0", "at least 1");
  if (threads < 1) reject(kName, "threads", std::to_string(threads), "at least 1");
  if (!(seconds > 0)) reject(kName, "seconds", to_text(seconds), "a number above 0");
  // Every thread reads a multiple of kUnroll lines.
  const size_t step = kUnroll * kLine;
  const size_t part = std::max<size_t>(1, (bytes + threads * step - 1) / (threads * step)) * kUnroll;
  const auto memory = allocate_for_long(static_cast<int64_t>((part * threads + 1) * kLine));
  const int64_t start = round_up(reinterpret_cast<int64_t>(memory.buffer().raw_ptr()), kCacheLine);
  auto* const words = reinterpret_cast<uint64_t*>(start);
  // Every thread writes and reads the same part: in ranges, thread i begins with item i.
  const auto for_each_thread = [&](auto&& work) {
    parallel_ranges(threads, threads, [&](int64_t thread) { work(words + thread * part * kLanes); });
  };
  for_each_thread([&](uint64_t* own) { std::fill_n(own, part * kLanes, 1); });

  // Each pass reads the buffer `rounds` times, so that the cost of starting threads is negligible.
  int rounds = 1;
  auto pass = [&] {
    const double begin = seconds_now();
    for_each_thread([&](const uint64_t* own) {
      for (int round = 0; round < rounds; ++round) sink += read_lines(own, part);
    });
    return seconds_now() - begin;
  };

  constexpr int kPasses = 4;  // at least
  const double end = seconds_now() + seconds;
  double best = 0;
  for (int passes = 0; passes < kPasses || seconds_now() < end; ++passes) {
    const double elapsed = pass();
    best = std::max(best, static_cast<double>(part * kLine) * threads * rounds / elapsed);
    if (elapsed < seconds / kPasses / 2) rounds *= 2;
  }
  return best;
}

}  // namespace tiny_llm_ext::cpu
