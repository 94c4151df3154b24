// The kernels of one instruction set: functions on plain pointers.
//
// This header is all that the kernel files (isa_*.cpp) share with the rest of the extension. They are
// compiled with instruction-set flags, so they may include neither the STL nor MLX: an inline function
// emitted there could become the copy that every other file calls.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/element.h"
#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/linear_kernels.h"
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
  // Runs `steps` rounds of multiply-adds on registers alone and returns the floating-point operations done:
  // the peak that benchmarks compare with.
  double (*peak[kElements])(int64_t steps);

  QuantizedKernels quantized[kElements];
  RowKernels rows[kElements];
  SelectLinearKernel linear[kElements];
};

// Defined in cpu/isa/isa_<name>.cpp.
const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();
const Kernels& neon_kernels();

}  // namespace tiny_llm_ext::cpu
