// The evaluation of a product with quantized weights, for whoever is on a worker thread already.
#pragma once

#include "cpu/runtime/dispatch.h"
#include "quantized_linear.h"

namespace tiny_llm_ext::cpu {

// Calculates y, which has memory, now.
void multiply_quantized(const QuantizedCall& call, Arrays& y);

}  // namespace tiny_llm_ext::cpu
