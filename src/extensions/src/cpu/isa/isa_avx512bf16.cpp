// AVX-512 with bfloat16 dot products for bfloat16 inputs.
#include "cpu/vec/avx512_pairs.h"

#include "cpu/attention/backward/bf16_products-inl.h"
#include "cpu/attention/decode/decode_bf16-inl.h"
#include "cpu/gemm/arithmetic_bf16-inl.h"
#include "cpu/gemm/dispatch-inl.h"
#include "cpu/quantized/dispatch_bf16-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& avx512bf16_kernels() {
  static const Kernels kernels = [] {
    Kernels table = avx512_kernels();
    table.name = "avx512bf16";
    avx512bf16::register_attention<
        avx512bf16::Bf16Operands,
        avx512bf16::forward_or_decode<avx512bf16::Bf16Operands,
                                      avx512bf16::Bf16Decode<avx512bf16::Bf16Operands>>>(table);
    avx512bf16::register_backward<avx512bf16::Bf16Products>(table);
    avx512bf16::register_quantized<kAvx512Bf16Paths, Element::bf16>(table);
    avx512bf16::register_linear<avx512bf16::Bf16Arithmetic, Element::bf16>(table);
    return table;
  }();
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
