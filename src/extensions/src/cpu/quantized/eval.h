// The evaluation of quantized linear layers on a worker thread.
#pragma once

#include "cpu/runtime/dispatch.h"
#include "quantized_linear.h"

namespace tiny_llm_ext::cpu {

// Computes y, whose memory is allocated.
void multiply_quantized(const QuantizedCall& call, Arrays& y);

}  // namespace tiny_llm_ext::cpu
