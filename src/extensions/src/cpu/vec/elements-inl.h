// Loads and stores of every element type, also of less than a vector.
#pragma once

#include <string.h>

#include "core/element.h"
#include "cpu/vec/prefetch.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
struct Storage {
  typedef uint16_t type;
};
template <>
struct Storage<Element::f32> {
  typedef float type;
};
template <Element kElement>
using StorageOf = typename Storage<kElement>::type;

template <Element kElement>
VEC_FN F load_as(const StorageOf<kElement>* p) {
  if constexpr (kElement == Element::f32) return load(p);
  if constexpr (kElement == Element::f16) return load_f16(p);
  if constexpr (kElement == Element::bf16) return load_bf16(p);
}

template <Element kElement>
VEC_FN void store_as(StorageOf<kElement>* p, F x) {
  if constexpr (kElement == Element::f32) store(p, x);
  if constexpr (kElement == Element::f16) store_f16(p, x);
  if constexpr (kElement == Element::bf16) store_bf16(p, x);
}

// One element in all lanes.
template <Element kElement>
VEC_FN F fill_from(const StorageOf<kElement>* p) {
  if constexpr (kElement == Element::f32) return set1(*p);
  StorageOf<kElement> same[kLanes];
  for (int lane = 0; lane < kLanes; lane++) same[lane] = *p;
  return load_as<kElement>(same);
}

// The first `count` elements at p, then zeros; reads nothing beyond.
template <Element kElement>
VEC_FN F load_some(const StorageOf<kElement>* p, int64_t count) {
  if (count >= kLanes) return load_as<kElement>(p);
  if constexpr (kMaskedLoads) {
    const int some = count > 0 ? (int)count : 0;
    if constexpr (kElement == Element::f32) return load_first(p, some);
    if constexpr (kElement == Element::f16) return load_first_f16(p, some);
    if constexpr (kElement == Element::bf16) return load_first_bf16(p, some);
  }
  StorageOf<kElement> part[kLanes] = {};
  if (count > 0) memcpy(part, p, count * sizeof(*p));
  return load_as<kElement>(part);
}

template <Element kElement>
VEC_FN void store_some(StorageOf<kElement>* p, F x, int64_t count) {
  if (count >= kLanes) return store_as<kElement>(p, x);
  StorageOf<kElement> part[kLanes];
  store_as<kElement>(part, x);
  memcpy(p, part, count * sizeof(*p));
}

constexpr float kMaxFloat = 0x1.fffffep127f;

// |x|; NaN where x is NaN.
VEC_FN F abs(F x) { return max(sub(zero(), x), x); }

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
