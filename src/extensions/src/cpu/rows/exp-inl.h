// exp(x - max) of a row and its sum: the numerators and the denominator of a softmax.
#pragma once

#include "cpu/rows/select-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
static float max(const void* row, int64_t count) {
  return largest_lane(largest_in<kElement>((const StorageOf<kElement>*)row, count));
}

template <Element kElement>
static float exp_minus(const void* row, int64_t count, float reference, float* out) {
  const StorageOf<kElement>* x = (const StorageOf<kElement>*)row;
  F sum = zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F e = exp2(mul(sub(load_as<kElement>(x + i), set1(reference)), set1(kLog2e)));
    store(out + i, e);
    sum = add(sum, e);
  }
  float lanes[kLanes];
  store(lanes, sum_neighbours<kLanes>(sum));
  float total = lanes[0];
  if (i == count) return total;
  store(lanes, exp2(mul(sub(load_some<kElement>(x + i, count - i), set1(reference)), set1(kLog2e))));
  for (int j = 0; i < count; i++, j++) {
    out[i] = lanes[j];
    total += lanes[j];
  }
  return total;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
