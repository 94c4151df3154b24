// AVX-512 with AMX tiles for bfloat16 inputs, and for products of any type.
#include "cpu/vec/avx512_pairs.h"

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/decode/decode_amx-inl.h"
#include "cpu/gemm/dispatch_amx-inl.h"
#include "cpu/quantized/blocked_bf16-inl.h"
#include "cpu/quantized/blocked_f32-inl.h"
#include "cpu/quantized/dispatch-inl.h"
#include "cpu/quantized/dispatch_amx-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels table = avx512_kernels();
    table.name = "amx";
    amx::offer<amx::AmxOperands, amx::forward_or_decode_amx>(table);
    // One or two rows are int8 digits in vectors: these processors have slow vector products of bfloat16 and
    // fast ones of int8. For some more rows, int8 digits need fewer tile products than split bfloat16.
    amx::offer_quantized<amx::OnTiles, amx::FewAtATime<amx::PiecesOnTiles>, Element::f32>(table);
    amx::offer_quantized<amx::OnTiles, amx::FewAtATime<amx::PiecesOnTiles>, Element::f16>(table);
    amx::offer_quantized<amx::OnTiles, amx::RoundedMany<amx::AmxProduct>, Element::bf16>(table);
    amx::offer_linear_on_tiles(table);
    return table;
  }();
  return kernels;
}

}  // namespace tiny_llm_ext::cpu
