// The kernels of an instruction set that computes every element type in float32.
#pragma once

#include "cpu/attention/backward/backward-inl.h"
#include "cpu/attention/forward-inl.h"
#include "cpu/gemm/dispatch-inl.h"
#include "cpu/quantized/dispatch-inl.h"
#include "cpu/rows/row_kernels-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr const PathTable& kFmaPaths = kLanes == 16 ? kAvx512Paths : kPaths;

static Kernels f32_kernels(const char* name) {
  Kernels kernels = {};
  kernels.name = name;
  register_attention<FloatOperands<Element::f32>>(kernels);
  register_attention<FloatOperands<Element::f16>>(kernels);
  register_attention<FloatOperands<Element::bf16>>(kernels);
  register_backward<FloatProducts<Element::f32>>(kernels);
  register_backward<FloatProducts<Element::f16>>(kernels);
  register_backward<FloatProducts<Element::bf16>>(kernels);
  register_quantized<kFmaPaths, Element::f32>(kernels);
  register_quantized<kFmaPaths, Element::f16>(kernels);
  register_quantized<kFmaPaths, Element::bf16>(kernels);
  register_rows<Element::f32>(kernels);
  register_rows<Element::f16>(kernels);
  register_rows<Element::bf16>(kernels);
  register_linear<F32Arithmetic, Element::f32>(kernels);
  register_linear<F32Arithmetic, Element::f16>(kernels);
  register_linear<F32Arithmetic, Element::bf16>(kernels);
  return kernels;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
