// The paths of quantized products on processors with AMX.
#pragma once

#include "cpu/gemm/arithmetic_amx_bf16-inl.h"
#include "cpu/quantized/blocked_bf16-inl.h"
#include "cpu/quantized/codec/int8-inl.h"
#include "cpu/quantized/dispatch-inl.h"
#include "cpu/quantized/skinny_amx_bf16-inl.h"
#include "cpu/quantized/skinny_amx_int8-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <int kBits, Element kElement>
struct KernelOf<Path::gemv_int8, kBits, kElement> : Gemv<Int8Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_amx_int8, kBits, kElement> : SkinnyAmxInt8<1, kBits, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_amx_int8_x2, kBits, kElement> : SkinnyAmxInt8<2, kBits, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_amx_bf16, kBits, kElement> : SkinnyAmxBf16<kBits, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::blocked_amx_bf16, kBits, kElement> : BlockedBf16<AmxBf16Arithmetic, kBits, kElement> {};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
