// The evaluation of quantized linear layers on a worker thread.
#pragma once

#include "cpu/interface/threads.h"
#include "cpu/quantized/layer_weights.h"
#include "cpu/runtime/dispatch.h"
#include "quantized_linear.h"

namespace tiny_llm_ext::cpu {

// As `quantized_linear`, with its weights as addresses. No residual: null.
struct QuantizedProductCall {
  const RowMatrix& x;
  int64_t rows;
  Element element;
  const LayerWeights& weights;
  const RowMatrix* residual;
  bool gated;
  const Kernels& kernels;
  Threads threads;
};

// Computes the results at y, row after row.
void multiply_quantized(const QuantizedProductCall& call, const std::vector<std::byte*>& y);

}  // namespace tiny_llm_ext::cpu
