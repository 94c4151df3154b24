// AVX-512 with AMX tiles for bfloat16 inputs, and for products of any type.
#include "cpu/vec/avx512_pairs.h"

#include "cpu/attention/amx_format-inl.h"
#include "cpu/attention/decode/one_position_amx-inl.h"
#include "cpu/gemm/linear_amx-inl.h"
#include "cpu/quantized/quantized-inl.h"
#include "cpu/quantized/quantized_many-inl.h"
#include "cpu/quantized/quantized_product-inl.h"
#include "cpu/quantized/quantized_tiles-inl.h"

namespace tiny_llm_ext::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels table = avx512_kernels();
    table.name = "amx";
    amx::offer<amx::AmxFormat, amx::forward_heads_on_tiles>(table);
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
