// Unpacks one row of quantized weights.
#pragma once

#include "cpu/interface/row_kernels.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement, int kBits>
static void unpack_bits(const UnpackTask& task) {
  typedef StorageOf<kElement> T;
  const uint8_t* quants = (const uint8_t*)task.words;
  T* out = (T*)task.out;
  for (int64_t g = 0; g < task.num_groups; g++) {
    const F scale = fill_from<kElement>((const T*)task.scales + g);
    const F bias = fill_from<kElement>((const T*)task.biases + g);
    for (int e = 0; e < task.group_size; e += kLanes, quants += kLanes * kBits / 8, out += kLanes) {
      const F q = kBits == 4 ? load_u4(quants) : load_u8(quants);
      store_as<kElement>(out, fma(q, scale, bias));
    }
  }
}

template <Element kElement>
static void unpack(const UnpackTask& task) {
  if (task.bits == 4)
    unpack_bits<kElement, 4>(task);
  else
    unpack_bits<kElement, 8>(task);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
