// Tracks which slots of a cache are free: those after the last token of any array in the same memory.
#include "cpu/runtime/cache_memory.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cpu/runtime/output_memory.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

namespace {

using Memory = mx::array::Data;

// The memory of all caches that grow_or_allocate returned, with the number of tokens in it. MLX reuses the
// memory of arrays that nothing refers to, so an entry is trusted only if the caller still holds the cache.
class GrownMemory {
 public:
  // Whether the slots after `length` tokens are free. If so, takes `added` of them.
  bool take(const mx::array& cache, int64_t length, int64_t added) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(cache.data_shared_ptr().get());
    if (found == entries_.end()) return false;
    Entry& entry = found->second;
    // New memory may have the same address; another shape has its tokens elsewhere.
    if (entry.memory.expired() || entry.shape != cache.shape() || entry.tokens != length) return false;
    entry.tokens += added;
    return true;
  }

  void note(const mx::array& cache, int64_t tokens) {
    std::lock_guard lock(mutex_);
    if (entries_.size() >= max_entries_) forget_freed();
    entries_.insert_or_assign(cache.data_shared_ptr().get(),
                              Entry{cache.data_shared_ptr(), cache.shape(), tokens});
  }

 private:
  struct Entry {
    std::weak_ptr<Memory> memory;
    mx::Shape shape;
    int64_t tokens;
  };

  void forget_freed() {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.memory.expired(); });
    max_entries_ = std::max(kMinEntries, 2 * entries_.size());
  }

  static constexpr size_t kMinEntries = 256;
  std::mutex mutex_;
  std::unordered_map<const Memory*, Entry> entries_;
  size_t max_entries_ = kMinEntries;  // until freed ones are forgotten
};

// Leaked on purpose: a process may end while something is evaluated.
GrownMemory& grown_memory() {
  static auto* const memory = new GrownMemory;
  return *memory;
}

}  // namespace

bool grow_or_allocate(mx::array& out, const mx::array& cache, CacheState state, int64_t added) {
  if (state.caller_holds && cache.flags().row_contiguous && grown_memory().take(cache, state.length, added)) {
    out.copy_shared_buffer(cache);
    return true;
  }
  const bool in_place = reuse_or_allocate(out, {&cache});
  grown_memory().note(out, state.length + added);
  return in_place;
}

}  // namespace tiny_llm_ext::cpu
