// Prefetches. Addresses beyond an array are harmless.
#pragma once

#include <stddef.h>

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// A cache line, to the second-level cache: the first-level cache has too few outstanding misses for the
// latency of memory (benches/LOG.md).
VEC_FN void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }
// To the first-level cache, for lines that are read before they are evicted.
VEC_FN void prefetch_l1(const void* p) { __builtin_prefetch(p, 0, 3); }
VEC_FN void prefetch(const void* p, size_t bytes) {
  for (size_t byte = 0; byte < bytes; byte += 64) prefetch_l2((const char*)p + byte);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
