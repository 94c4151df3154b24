// The kernels of one instruction set: functions on plain pointers.
//
// Kernel files (cpu/isa/isa_<name>.cpp) are compiled with instruction-set flags. They include neither the STL
// nor MLX, and a function in a header that they share with other files is static: of an inline function the
// linker keeps one copy, which may be theirs, for every machine.
#pragma once

#include "core/element.h"
#include "cpu/interface/attention_kernels.h"
#include "cpu/interface/linear_kernels.h"
#include "cpu/interface/machine.h"
#include "cpu/interface/quantized_kernels.h"
#include "cpu/interface/row_kernels.h"

namespace tiny_llm_ext::cpu {

struct Kernels {
  const char* name;
  AttentionKernels attention[kElements];
  QuantizedKernels quantized[kElements];
  RowKernels rows[kElements];
  SelectLinearKernel linear[kElements];
  // Products that give a row the same bits among any number of rows. See `set_batch_invariant`.
  QuantizedKernels invariant_quantized[kElements];
  SelectLinearKernel invariant_linear[kElements];
  // A table whose `quantized` and `linear` are those; attention adds the keys of any row in one order.
  bool batch_invariant;
};

// Defined in cpu/isa/isa_<name>.cpp.
#define TINY_LLM_DECLARE(isa) const Kernels& isa##_kernels();
TINY_LLM_ISAS(TINY_LLM_DECLARE)
#undef TINY_LLM_DECLARE

}  // namespace tiny_llm_ext::cpu
