// Memory for weights in huge pages.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// One allocation for arrays of a model, each aligned to a cache line, in huge pages where Linux provides
// them: decoding reads all weights for every token, with a TLB miss every 4 KB in small pages. The memory is
// freed with the last of its arrays. To MLX each array has a buffer of the size of the allocation;
// mx::contiguous would copy it.
class WeightMemory {
 public:
  explicit WeightMemory(const std::vector<int64_t>& sizes);  // of the arrays, in bytes

  // The next array, a copy of `array`.
  mlx::core::array copy(const mlx::core::array& array);
  // The next array, read from an open file from byte `begin` on. If reading fails, its memory is not reused.
  mlx::core::array read(int file, int64_t begin, mlx::core::Shape shape, mlx::core::Dtype dtype);

 private:
  // The next array, uninitialized.
  mlx::core::array place(mlx::core::Shape shape, mlx::core::Dtype dtype);

  mlx::core::array memory_;
  std::mutex mutex_;
  int64_t next_, end_;  // bytes; next_ is guarded by mutex_
};

}  // namespace tiny_llm_ext::cpu
