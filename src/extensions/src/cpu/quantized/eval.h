// The evaluation of quantized linear layers on a worker thread.
#pragma once

#include "cpu/interface/threads.h"
#include "cpu/quantized/layer_weights.h"
#include "cpu/runtime/dispatch.h"
#include "quantized_linear.h"

namespace tiny_llm_ext::cpu {

// As `quantized_linear`, with its weights as addresses. No residual: null.
struct QuantizedProductCall {
  const mx::array& x;
  const LayerWeights& weights;
  const mx::array* residual;
  bool gated;
  const Kernels& kernels;
  Threads threads;
};

// Computes y, whose memory is allocated.
void multiply_quantized(const QuantizedProductCall& call, Arrays& y);

}  // namespace tiny_llm_ext::cpu
