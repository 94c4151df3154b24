// Elementwise operations on dense rows.
#pragma once

#include "cpu/vec/elements-inl.h"
#include "cpu/vec/log2e.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// out[i] = map(a[i], b[i]) on vectors.
template <Element kElement, class Map>
VEC_FN void map_rows(const void* a, const void* b, void* out, int64_t count, Map map) {
  typedef StorageOf<kElement> T;
  const T *from_a = (const T*)a, *from_b = (const T*)b;
  T* to = (T*)out;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store_as<kElement>(to + i, map(load_as<kElement>(from_a + i), load_as<kElement>(from_b + i)));
  if (i == count) return;
  const F last = map(load_some<kElement>(from_a + i, count - i), load_some<kElement>(from_b + i, count - i));
  store_some<kElement>(to + i, last, count - i);
}

// x / (1 + e^-x). For large negative x the power is infinite and the quotient -0.
VEC_FN F silu(F x) { return div(x, add(set1(1.0f), exp2(mul(x, set1(-kLog2e))))); }

template <Element kElement>
static void silu_multiply(const void* gate, const void* up, void* out, int64_t count) {
  map_rows<kElement>(gate, up, out, count, [](F g, F u) { return mul(silu(g), u); });
}

template <Element kElement>
static void add_rows(const void* a, const void* b, void* out, int64_t count) {
  map_rows<kElement>(a, b, out, count, [](F x, F y) { return add(x, y); });
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
