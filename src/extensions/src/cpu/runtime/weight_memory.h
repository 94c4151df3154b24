// Memory for weights in the large pages of the system.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// One piece of memory for arrays of a model, each from the beginning of a cache line on. Linux is asked for
// large pages there: with small ones, who reads a model once a token has a page looked up every 4 KB. The
// memory lives as long as one of its arrays, so that it is for what stays together. To MLX each of them has a
// buffer as large as all; mx::contiguous would copy it.
class WeightMemory {
 public:
  explicit WeightMemory(const std::vector<int64_t>& sizes);  // of the arrays, in bytes

  // The next array: a copy of this one,
  mlx::core::array copy(const mlx::core::array& array);
  // or what lies in an open file, from byte `begin` on. Its room is lost if it cannot be read.
  mlx::core::array read(int file, int64_t begin, mlx::core::Shape shape, mlx::core::Dtype dtype);

 private:
  // Room for an array that is about to be written.
  mlx::core::array place(mlx::core::Shape shape, mlx::core::Dtype dtype);

  mlx::core::array memory_;
  std::mutex mutex_;
  int64_t next_, end_;  // bytes; next_ is guarded by mutex_
};

}  // namespace tiny_llm_ext::cpu
