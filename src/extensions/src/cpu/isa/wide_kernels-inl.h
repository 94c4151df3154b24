// The kernels of an instruction set that computes every element type in float32.
#pragma once

#include "cpu/attention/forward-inl.h"
#include "cpu/gemm/dispatch-inl.h"
#include "cpu/quantized/blocked_f32-inl.h"
#include "cpu/quantized/dispatch-inl.h"
#include "cpu/rows/row_kernels-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

static Kernels wide_kernels(const char* name) {
  Kernels kernels = {};
  kernels.name = name;
  offer<FloatOperands<Element::f32>>(kernels);
  offer<FloatOperands<Element::f16>>(kernels);
  offer<FloatOperands<Element::bf16>>(kernels);
  offer_quantized<InVectors<WideUnits>, WideMany, Element::f32>(kernels);
  offer_quantized<InVectors<WideUnits>, WideMany, Element::f16>(kernels);
  offer_quantized<InVectors<WideUnits>, WideMany, Element::bf16>(kernels);
  offer_rows<Element::f32>(kernels);
  offer_rows<Element::f16>(kernels);
  offer_rows<Element::bf16>(kernels);
  offer_linear<WideProduct, Element::f32>(kernels);
  offer_linear<WideProduct, Element::f16>(kernels);
  offer_linear<WideProduct, Element::bf16>(kernels);
  return kernels;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
