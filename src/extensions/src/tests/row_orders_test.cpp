// The numbers of rows in the documentation are those by which the kernels of this instruction set choose. To
// be compiled only, with its flags.
#include <stdint.h>

#include "cpu/quantized/paths.h"
#include VEC_HEADER
#ifdef TINY_LLM_ON_TILES
#include "cpu/attention/amx_operands-inl.h"
#include "cpu/quantized/dispatch-inl.h"
#include "cpu/quantized/dispatch_amx-inl.h"
#else
#include "cpu/quantized/dispatch-inl.h"
#endif

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr const RowOrders& kVectors = kLanes == 16 ? kOrdersOfAvx512 : kOrdersElsewhere;
static_assert(kVectors.last[0] == kOneRows && kVectors.last[1] == kFewRows && kVectors.last[2] == 0);

#ifdef TINY_LLM_ON_TILES
static_assert(kOrdersOnAmx.last[0] == kOneRows && kOrdersOnAmxOfBf16.last[0] == kOneRows);
static_assert(kOrdersOnAmx.last[1] == DigitLanes::kOneTileRows);
static_assert(kOrdersOnAmx.last[2] == DigitsOnTiles<4, Element::f32>::kRows);
static_assert(kOrdersOnAmxOfBf16.last[1] == DigitsOnTiles<4, Element::bf16>::kRows);
static_assert(kOrdersOnAmxOfBf16.last[2] == OnTiles::kRows);
#endif

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
