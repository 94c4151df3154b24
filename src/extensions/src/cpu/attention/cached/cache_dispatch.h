// Evaluation of operations that append to key/value caches.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cached_attention.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext::cpu {

// The caches of an operation: keys and values are the inputs from `first` on, and the outputs after the first
// output, with `added` more tokens.
struct CacheArrays {
  size_t first;
  std::vector<CacheInBatch> in_batch;
  int64_t added;
};

// The memory of a cache (rows, heads, capacity, E) whose first `length` tokens are valid, with its first row
// in the batch.
struct CacheMemory {
  std::byte *keys, *values;
  int64_t first_row, rows, capacity, length;
};

// Gives the outputs memory and calls work(result, caches) once the inputs are evaluated; the memory of caches
// that are not written in place, see `grow_or_allocate`, is copied first. If work throws, the other outputs
// become NaN; caches in place keep the tokens they had. The work has the addresses of its arrays, not the
// arrays: to follow each costs several cache lines, which the weights of a model drive out of the caches in
// every step.
void dispatch_on_caches(mlx::core::Stream stream, const Arrays& inputs, Arrays& outputs,
                        const CacheArrays& caches,
                        std::function<void(std::byte* result, const std::vector<CacheMemory>& caches)> work);

}  // namespace tiny_llm_ext::cpu
