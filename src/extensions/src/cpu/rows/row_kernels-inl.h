// Fills the table of row kernels.
#pragma once

#include "cpu/rows/powers-inl.h"
#include "cpu/rows/rms_norm-inl.h"
#include "cpu/rows/rope-inl.h"
#include "cpu/rows/rows-inl.h"
#include "cpu/rows/select-inl.h"
#include "cpu/rows/unpack-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
static void register_rows(Kernels& kernels) {
  RowKernels& rows = kernels.rows[(int)kElement];
  rows.silu_multiply = silu_multiply<kElement>;
  rows.add = add_rows<kElement>;
  rows.rms_norm = rms_norm_any_weight<kElement>;
  rows.rope = rope<kElement>;
  rows.unpack = unpack<kElement>;
  rows.argmax = argmax<kElement>;
  rows.scan = scan<kElement>;
  rows.logsumexp = logsumexp<kElement>;
  rows.largest = largest<kElement>;
  rows.powers = powers<kElement>;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
