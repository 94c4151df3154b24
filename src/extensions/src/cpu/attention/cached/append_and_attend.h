// What operations on the caches of a step share: their memory, and attention to them.
#pragma once

#include <functional>
#include <vector>

#include "cached_attention.h"
#include "cpu/kernels/kernels.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext::cpu {

// Inputs and outputs are those of CachedAttention, which have memory; a cache that is not in place is copied
// first. Calculates them now.
void append_and_attend(const Arrays& inputs, Arrays& outputs, const CachedAttentionParams& params,
                       const std::vector<CachePlace>& places, const Kernels& kernels, int threads,
                       const std::vector<bool>& in_place);

// The caches of an operation: the inputs from `first` on, and the outputs behind the first with `added`
// tokens more.
struct CacheArrays {
  size_t first;
  std::vector<CachePlace> places;
  int64_t added;
};

// Gives the outputs memory and calls work(inputs, outputs, in_place) when the data of the inputs is there.
// Some caches are in place, in the memory of their input, see `place_grown`. If work throws, outputs are NaN
// but for those, which keep the tokens they had.
void dispatch_on_caches(
    mx::Stream stream, const Arrays& inputs, Arrays& outputs, const CacheArrays& caches,
    std::function<void(const Arrays& inputs, Arrays& outputs, const std::vector<bool>& in_place)> work);

}  // namespace tiny_llm_ext::cpu
