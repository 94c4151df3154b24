// One log for the process, behind a lock that only those who measure pay for.
#include "cpu/runtime/region_log.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

namespace tiny_llm_ext::cpu {
namespace {

thread_local const char* current_operation = nullptr;

std::atomic<bool> kept{false};
std::mutex mutex;  // guards `regions`
std::vector<Region> regions;

}  // namespace

Operation::Operation(const char* name) : outermost_(!current_operation) {
  if (!outermost_) return;
  current_operation = name;
  if (keeps_regions()) begin_ = nanoseconds_now();
}

Operation::~Operation() {
  if (!outermost_) return;
  if (begin_ != 0 && keeps_regions()) keep_region({{}, 0, 1, begin_, nanoseconds_now(), 0, 0});
  current_operation = nullptr;
}

void start_region_log() {
  std::lock_guard lock(mutex);
  regions.clear();
  kept = true;
}

std::vector<Region> end_region_log() {
  std::lock_guard lock(mutex);
  kept = false;
  return std::exchange(regions, {});
}

bool keeps_regions() { return kept.load(std::memory_order_relaxed); }

void keep_region(Region region) {
  region.operation = current_operation ? current_operation : "other";
  std::lock_guard lock(mutex);
  if (kept) regions.push_back(std::move(region));
}

int64_t nanoseconds_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace tiny_llm_ext::cpu
