// The check that MLX's allocator leaves to its caller.
#include "cpu/allocate.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace tiny_llm_ext::cpu {

mlx::core::allocator::Data allocate(int64_t bytes) {
  // MLX 0.32.4 counts even what it could not get as memory in use, and waits for it to be freed: so ask the
  // system first, where the answer may be no.
  constexpr int64_t kLarge = int64_t{1} << 30;
  if (bytes >= kLarge) {
    void* volatile probe =
        std::malloc(bytes);  // volatile: compilers may take an unused allocation as granted
    std::free(probe);
    if (!probe) {
      throw std::runtime_error("tiny_llm_ext: out of memory: cannot allocate " + std::to_string(bytes) +
                               " bytes");
    }
  }
  return mlx::core::allocator::malloc(bytes);
}

mlx::core::array new_array(mlx::core::Shape shape, mlx::core::Dtype dtype) {
  int64_t bytes = dtype.size();
  for (int size : shape) bytes *= size;
  return mlx::core::array(allocate(bytes), std::move(shape), dtype);
}

}  // namespace tiny_llm_ext::cpu
