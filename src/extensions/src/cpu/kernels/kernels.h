// The kernels of one instruction set: functions on plain pointers.
//
// Kernel files (cpu/isa/isa_<name>.cpp) are compiled with instruction-set flags. They include neither the STL
// nor MLX, and a function in a header that they share with other files is static: of an inline function the
// linker keeps one copy, which may be theirs, for every machine.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/element.h"
#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/linear_kernels.h"
#include "cpu/kernels/machine.h"
#include "cpu/kernels/quantized_kernels.h"
#include "cpu/kernels/row_kernels.h"

namespace tiny_llm_ext::cpu {

struct Kernels {
  const char* name;

  // Attention. Returns the number of score tiles computed, of `row_tile` rows by `key_tile` keys.
  int64_t (*forward[kElements])(const ForwardTask& task, void* scratch);
  // Bytes of scratch, 64-byte aligned, for a task of `rows` rows; independent of the number of keys.
  size_t (*scratch_bytes[kElements])(int32_t E, int64_t rows);
  int row_tile[kElements];
  int key_tile[kElements];
  // Row tiles that one task should have, to share the work of preparing a K/V tile.
  int tiles_per_task[kElements];
  // Whether scores and outputs are sums of bfloat16 products; else of float32 products.
  bool bf16_products[kElements];
  // Runs `steps` rounds of attention's multiply-adds on registers alone and returns the floating-point
  // operations done. On AMX, products with dense float32 or float16 weights can exceed that: they run as
  // split bfloat16 on tiles.
  double (*peak[kElements])(int64_t steps);

  QuantizedKernels quantized[kElements];
  RowKernels rows[kElements];
  FormOfRows linear[kElements];
};

// Defined in cpu/isa/isa_<name>.cpp.
#define TINY_LLM_DECLARE(isa) const Kernels& isa##_kernels();
TINY_LLM_ISAS(TINY_LLM_DECLARE)
#undef TINY_LLM_DECLARE

}  // namespace tiny_llm_ext::cpu
