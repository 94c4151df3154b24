// The root mean square norm of one row.
#pragma once

#include <math.h>

#include "cpu/interface/row_kernels.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Calls step(i, count) for each vector of a row: it starts at element i and has `count` elements.
template <class Step>
VEC_FN void for_vectors(int64_t width, Step step) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) step(i, (int64_t)kLanes);
  if (i < width) step(i, width - i);
}

template <Element kElement, Element kWeight>
static void rms_norm(const NormTask& task) {
  typedef StorageOf<kElement> T;
  typedef StorageOf<kWeight> W;
  const T* x = (const T*)task.x;
  F squares[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= task.width; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const F part = load_as<kElement>(x + i + j * kLanes);
      squares[j] = fma(part, part, squares[j]);
    }
  for (; i < task.width; i += kLanes) {
    const F part = load_some<kElement>(x + i, task.width - i);
    squares[0] = fma(part, part, squares[0]);
  }
  const F all = add(add(squares[0], squares[1]), add(squares[2], squares[3]));
  float sums[kLanes];
  store(sums, sum_neighbours<kLanes>(all));
  const F scale = set1(1.0f / sqrtf(sums[0] / (float)task.width + task.eps));

  T* y = (T*)task.y;
  const W* weight = (const W*)task.weight;
  for_vectors(task.width, [&](int64_t k, int64_t left) __attribute__((always_inline)) {
    const F normalised = mul(load_some<kElement>(x + k, left), scale);
    store_some<kElement>(y + k, mul(normalised, load_some<kWeight>(weight + k, left)), left);
  });
}

template <Element kElement>
static void rms_norm_any_weight(const NormTask& task) {
  if (task.weight_element == Element::f32) return rms_norm<kElement, Element::f32>(task);
  if (task.weight_element == Element::f16) return rms_norm<kElement, Element::f16>(task);
  return rms_norm<kElement, Element::bf16>(task);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
