// Evaluation of operations that append to key/value caches.
#pragma once

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

// Gives the outputs memory and calls work(inputs, outputs, in_place) once the inputs are evaluated.
// in_place[i] says whether cache output i shares the memory of its input, see `grow_or_allocate`. If work
// throws, the other outputs become NaN; caches in place keep the tokens they had.
void dispatch_on_caches(
    mx::Stream stream, const Arrays& inputs, Arrays& outputs, const CacheArrays& caches,
    std::function<void(const Arrays& inputs, Arrays& outputs, const std::vector<bool>& in_place)> work);

}  // namespace tiny_llm_ext::cpu
