// The paths of quantized products with pair dot products of bfloat16.
#pragma once

#include "cpu/quantized/blocked_bf16-inl.h"
#include "cpu/quantized/codec/bf16-inl.h"
#include "cpu/quantized/dispatch-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <int kBits, Element kElement>
struct KernelOf<Path::gemv_bf16, kBits, kElement> : Gemv<Bf16Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_bf16, kBits, kElement> : Skinny<Bf16Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::blocked_bf16, kBits, kElement> : BlockedBf16<Bf16Arithmetic, kBits, kElement> {};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
