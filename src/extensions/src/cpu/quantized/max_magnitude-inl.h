// The bits of the largest magnitude of some elements, in float32: its exponent scales int8 digits and split
// bf16.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// NaN counts as the largest.
template <Element kElement>
VEC_FN uint32_t max_magnitude_bits(const StorageOf<kElement>* x, int64_t count) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += kLanes)
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(load_as<kElement>(x + i)),
                                                         _mm512_set1_epi32(0x7fffffff)));
  return _mm512_reduce_max_epu32(largest);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
