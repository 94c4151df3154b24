// One block for each thread, which grows.
#include "cpu/runtime/scratch.h"

#include <memory>
#include <new>

#include "core/divide_up.h"

namespace tiny_llm_ext::cpu {

void* thread_scratch(size_t bytes) {
  constexpr std::align_val_t kAlignment{kCacheLine};
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
