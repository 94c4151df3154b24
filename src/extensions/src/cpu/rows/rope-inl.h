// Rotary embedding of all heads of one token.
#pragma once

#include "cpu/interface/row_kernels.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Pairs (i, i + half): vectors of the two halves.
template <Element kElement>
static void rotate_halves(const RopeTask& task) {
  typedef StorageOf<kElement> T;
  const F sign = set1(task.inverse ? -1.0f : 1.0f);
  for (int64_t i = 0; i < task.half; i += kLanes) {
    const int64_t left = task.half - i;
    const F cos = load_some<Element::f32>(task.cos + i, left);
    const F sin = mul(sign, load_some<Element::f32>(task.sin + i, left));
    for (int64_t h = 0; h < task.heads; h++) {
      const T* x = (const T*)task.x + h * task.x_head_stride + i;
      T* y = (T*)task.y + h * task.y_head_stride + i;
      const F real = load_some<kElement>(x, left), imaginary = load_some<kElement>(x + task.half, left);
      store_some<kElement>(y, sub(mul(real, cos), mul(imaginary, sin)), left);
      store_some<kElement>(y + task.half, add(mul(imaginary, cos), mul(real, sin)), left);
    }
  }
}

// Pairs (2i, 2i + 1), one by one: none of the supported models has them.
template <Element kElement>
static void rotate_adjacent(const RopeTask& task) {
  typedef StorageOf<kElement> T;
  const float sign = task.inverse ? -1.0f : 1.0f;
  for (int64_t h = 0; h < task.heads; h++) {
    const T* x = (const T*)task.x + h * task.x_head_stride;
    T* y = (T*)task.y + h * task.y_head_stride;
    for (int64_t e = 0; e < 2 * task.half; e += kLanes) {
      const int64_t left = 2 * task.half - e;
      float pairs[kLanes];
      store(pairs, load_some<kElement>(x + e, left));
      for (int j = 0; j < kLanes && j < left; j += 2) {
        const float cos = task.cos[(e + j) / 2], sin = sign * task.sin[(e + j) / 2];
        const float real = pairs[j], imaginary = pairs[j + 1];
        pairs[j] = real * cos - imaginary * sin;
        pairs[j + 1] = imaginary * cos + real * sin;
      }
      store_some<kElement>(y + e, load(pairs), left);
    }
  }
}

template <Element kElement>
static void rope(const RopeTask& task) {
  if (task.traditional)
    rotate_adjacent<kElement>(task);
  else
    rotate_halves<kElement>(task);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
