// What operations on the caches of a step share: their memory, and attention to them.
#pragma once

#include <functional>
#include <vector>

#include "cached_attention.h"
#include "cpu/dispatch.h"
#include "cpu/kernels.h"

namespace tiny_llm_ext::cpu {

// Inputs and outputs are those of CachedAttention, which have memory; a cache that is not in place is copied
// first. Calculates them now.
void append_and_attend(const Arrays& inputs, Arrays& outputs, const CachedAttentionParams& params,
                       const std::vector<CachePlace>& places, const Kernels& kernels, int threads,
                       const std::vector<bool>& in_place);

// Gives the outputs memory and calls work(inputs, outputs, in_place) when the data of the inputs is there.
// The outputs behind the first are caches, the inputs from first_cache on as they were before: each is in
// place, in the memory of its input, if nobody else holds that. If work throws, outputs are NaN but for
// caches in place, which keep the tokens they had.
void dispatch_on_caches(
    mx::Stream stream, const Arrays& inputs, Arrays& outputs, size_t first_cache,
    std::function<void(const Arrays& inputs, Arrays& outputs, const std::vector<bool>& in_place)> work);

}  // namespace tiny_llm_ext::cpu
