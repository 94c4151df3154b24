// The checks that MLX's allocator leaves to its caller, and how malloc keeps freed memory.
#include "cpu/runtime/allocate.h"

#if defined(__linux__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace tiny_llm_ext::cpu {
namespace {

// A layer frees memory that the next layer allocates. By default glibc returns large blocks to the system,
// and each of their pages costs a fault when it is allocated again: up to a tenth of a prefill of 512 tokens.
// So blocks below kLargestKept come from the heaps of glibc's arenas, and an arena keeps up to kMostKept of
// free memory at the end of its heap (free memory before that always stays). Settings for malloc in the
// environment win.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestKept = 32 << 20;  // bytes of a block: glibc accepts no more
  constexpr int kMostKept = 256 << 20;
  [[maybe_unused]] static const bool set = [] {
    const char* const tunables = std::getenv("GLIBC_TUNABLES");
    const bool tuned = tunables && std::string(tunables).find("glibc.malloc.") != std::string::npos;
    if (tuned || std::getenv("MALLOC_MMAP_THRESHOLD_") || std::getenv("MALLOC_TRIM_THRESHOLD_")) return false;
    return mallopt(M_MMAP_THRESHOLD, kLargestKept) && mallopt(M_TRIM_THRESHOLD, kMostKept);
  }();
#endif
}

constexpr int64_t kMostBytes = int64_t{1} << 62;

[[noreturn]] void fail(const std::string& bytes) {
  throw std::runtime_error("tiny_llm_ext: out of memory: cannot allocate " + bytes);
}

template <class Sizes>
int64_t product(const Sizes& sizes, int64_t bytes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  for (int64_t size : sizes) {
    if (size > kMostBytes / bytes) fail(std::to_string(kMostBytes) + " bytes or more");
    bytes *= size;
  }
  return bytes;
}

}  // namespace

int64_t bytes_of(const mlx::core::Shape& shape, mlx::core::Dtype dtype) {
  return product(shape, dtype.size());
}

int64_t bytes_of(std::initializer_list<int64_t> sizes) { return product(sizes, 1); }

mlx::core::allocator::Data allocate(int64_t bytes) {
  keep_freed_memory();
  // MLX 0.32.4 counts a failed allocation as memory in use, and waits for it to be freed: so large sizes are
  // tried with malloc first.
  constexpr int64_t kLarge = int64_t{1} << 30;
  if (bytes >= kLarge) {
    void* volatile probe = std::malloc(bytes);  // volatile: or a compiler may assume that it succeeds
    std::free(probe);
    if (!probe) fail(std::to_string(bytes) + " bytes");
  }
  return mlx::core::allocator::malloc(bytes);
}

void allocate_for(mlx::core::array& array) {
  array.set_data(allocate(bytes_of(array.shape(), array.dtype())));
}

mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype) {
  const int64_t bytes = bytes_of(shape, dtype);
  return mlx::core::array(allocate(bytes), std::move(shape), dtype);
}

}  // namespace tiny_llm_ext::cpu
