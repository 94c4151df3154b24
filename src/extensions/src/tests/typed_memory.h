// Numbers of any element type in guarded memory.
#pragma once

#include "cpu/interface/kernels.h"
#include "guarded.h"
#include "half.h"

namespace tiny_llm_ext::tests {

inline size_t bytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

inline void put(Guarded& memory, Element element, int64_t index, double x) {
  if (element == Element::f32) {
    memory.as<float>()[index] = static_cast<float>(x);
  } else {
    memory.as<uint16_t>()[index] = (element == Element::f16 ? kFloat16 : kBfloat16).encode(x);
  }
}

inline double get(const Guarded& memory, Element element, int64_t index) {
  if (element == Element::f32) return memory.as<float>()[index];
  return (element == Element::f16 ? kFloat16 : kBfloat16).decode(memory.as<uint16_t>()[index]);
}

}  // namespace tiny_llm_ext::tests
