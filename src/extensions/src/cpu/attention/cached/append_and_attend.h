// One step of cached attention.
#pragma once

#include <vector>

#include "cached_attention.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext::cpu {

// Computes the outputs of CachedAttention now. They have memory; a cache that is not in place is copied
// first.
void append_and_attend(const Arrays& inputs, Arrays& outputs, const CachedAttentionParams& params,
                       const std::vector<CacheInBatch>& caches, const Kernels& kernels, int threads,
                       const std::vector<bool>& in_place);

}  // namespace tiny_llm_ext::cpu
