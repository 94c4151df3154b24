// AVX-512 plus AMX: attention on bfloat16, products of every type.
#include "cpu/vec/avx512_pairs.h"

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/backward/amx_products-inl.h"
#include "cpu/attention/decode/decode_amx-inl.h"
#include "cpu/gemm/dispatch_amx-inl.h"
#include "cpu/quantized/dispatch_amx-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels table = avx512_kernels();
    table.name = "amx";
    amx::register_attention<amx::AmxOperands, amx::forward_or_decode_amx>(table);
    amx::register_backward<amx::AmxProducts>(table);
    amx::register_quantized<kAmxF32Paths, Element::f32>(table);
    amx::register_quantized<kAmxF16Paths, Element::f16>(table);
    amx::register_quantized<kAmxBf16Paths, Element::bf16>(table);
    amx::register_linear_on_amx(table);
    return table;
  }();
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
