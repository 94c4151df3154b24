// The counters live behind a mutex: each stream evaluates on a thread of its own.
#include "attention/last_run.h"

#include <mutex>
#include <utility>

namespace tiny_llm_ext {
namespace {

std::mutex mutex;
LastRun latest;

}  // namespace

void record_run(LastRun run) {
  std::lock_guard lock(mutex);
  latest = std::move(run);
}

LastRun last_run() {
  std::lock_guard lock(mutex);
  return latest;
}

}  // namespace tiny_llm_ext
