// Packs rows as the B operand of the microkernel: steps of all rows of a tile next to each other.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// out[unit][lane] = row(lane)(unit) for a tile of `rows` rows, `vectors` vectors wide; lanes without a row
// get 0. read(row, unit) gives kLanes units of a row.
template <class Read>
VEC_FN void pack_transposed(int rows, int vectors, int units, float* out, Read read) {
  for (int v = 0; v < vectors; v++)
    for (int unit = 0; unit < units; unit += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = v * kLanes + j < rows ? read(v * kLanes + j, unit) : zero();
      transpose(block);
      int count = units - unit < kLanes ? units - unit : kLanes;
      for (int j = 0; j < count; j++) store(out + ((size_t)(unit + j) * vectors + v) * kLanes, block[j]);
    }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
