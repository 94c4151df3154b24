// One step of cached attention.
#pragma once

#include <vector>

#include "cached_attention.h"
#include "core/element.h"
#include "cpu/attention/cached/cache_dispatch.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext::cpu {

// The new tokens of a step, see `cached_attention`: query (B, L, Hq, E), key and value (B, L, Hkv, E) with
// any strides.
struct NewTokens {
  RowReader query, key, value, cos, sin;
  int64_t B, L, Hq, Hkv, E;
  Element element;
  TokenOffsets offset;
  float scale;
  bool traditional;
};

// Computes `attended` (B, L, Hq * E) now, and appends to the caches.
void append_and_attend(const NewTokens& tokens, const std::vector<CacheMemory>& caches, std::byte* attended,
                       const Kernels& kernels, int threads);

}  // namespace tiny_llm_ext::cpu
