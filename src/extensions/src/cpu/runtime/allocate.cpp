// The checks that MLX's allocator leaves to its caller, and how malloc keeps freed memory.
#include "cpu/runtime/allocate.h"

#if defined(__linux__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/divide_up.h"
#include "cpu/interface/threads.h"
#include "cpu/runtime/placement.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr int kMaxBlock = 32 << 20;  // bytes: glibc accepts no more

// A layer frees memory that the next layer allocates. By default glibc returns large blocks to the system,
// and each of their pages costs a fault when it is allocated again: up to a tenth of a prefill of 512 tokens.
// So blocks below kMaxBlock come from the heaps of glibc's arenas, and an arena keeps up to kMaxFree of free
// memory at the end of its heap (free memory before that always stays). Settings for malloc in the
// environment win.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kMaxFree = 256 << 20;
  [[maybe_unused]] static const bool set = [] {
    const char* const tunables = std::getenv("GLIBC_TUNABLES");
    const bool tuned = tunables && std::string(tunables).find("glibc.malloc.") != std::string::npos;
    if (tuned || std::getenv("MALLOC_MMAP_THRESHOLD_") || std::getenv("MALLOC_TRIM_THRESHOLD_")) return false;
    return mallopt(M_MMAP_THRESHOLD, kMaxBlock) && mallopt(M_TRIM_THRESHOLD, kMaxFree);
  }();
#endif
}

}  // namespace

mlx::core::allocator::Data allocate(int64_t bytes) {
  keep_freed_memory();
  // MLX 0.32.4 counts a failed allocation as memory in use, and waits for it to be freed: so large sizes are
  // tried with malloc first.
  constexpr int64_t kLarge = int64_t{1} << 30;
  if (bytes >= kLarge) {
    void* volatile probe = std::malloc(bytes);  // volatile: or a compiler may assume that it succeeds
    std::free(probe);
    if (!probe) refuse_to_allocate(std::to_string(bytes) + " bytes");
  }
  mlx::core::allocator::Data block = mlx::core::allocator::malloc(bytes);
  // Smaller blocks lie in a heap. There the advice would stay after the block, and each small block that is
  // put into its memory later would bring in a huge page.
  if (bytes >= kMaxBlock) place_block(block.buffer().raw_ptr(), bytes);
  return block;
}

mlx::core::allocator::Data allocate_for_long(int64_t bytes) {
  mlx::core::allocator::Data block = allocate(bytes);
  if (bytes < kMaxBlock) place_block(block.buffer().raw_ptr(), bytes);
  return block;
}

void allocate_for(mlx::core::array& array) {
  array.set_data(allocate(bytes_of(array.shape(), array.dtype())));
}

mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype) {
  const int64_t bytes = bytes_of(shape, dtype);
  return mlx::core::array(allocate(bytes), std::move(shape), dtype);
}

void for_each_part(int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& work) {
  constexpr int64_t kPart = 1 << 20;
  parallel_ranges(divide_up(bytes, kPart), active_threads().decoding,
                  [&](int64_t part) { work(part * kPart, std::min(bytes, (part + 1) * kPart)); });
}

mlx::core::array new_zeros(mlx::core::Shape shape, mlx::core::Dtype dtype) {
  const int64_t bytes = bytes_of(shape, dtype);
  mlx::core::array zeros(allocate_for_long(bytes), std::move(shape), dtype);
  auto* const memory = zeros.data<std::byte>();
  for_each_part(bytes, [&](int64_t begin, int64_t end) { std::memset(memory + begin, 0, end - begin); });
  return zeros;
}

}  // namespace tiny_llm_ext::cpu
