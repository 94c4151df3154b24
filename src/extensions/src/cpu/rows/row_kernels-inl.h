// Fills the table of row kernels.
#pragma once

#include "cpu/interface/kernels.h"
#include "cpu/rows/elementwise-inl.h"
#include "cpu/rows/exp-inl.h"
#include "cpu/rows/rms_norm-inl.h"
#include "cpu/rows/rope-inl.h"
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
  rows.find_above = find_above<kElement>;
  rows.logsumexp = logsumexp<kElement>;
  rows.max = max<kElement>;
  rows.exp_minus = exp_minus<kElement>;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
