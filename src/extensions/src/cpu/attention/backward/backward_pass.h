// The fused backward pass of one call.
#pragma once

#include <optional>

#include "attention/problem.h"
#include "attention/transforms/gradient.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext::cpu {

// The wanted gradients, which have memory; the last axis of each is dense.
struct Gradients {
  std::optional<mlx::core::array> dq, dk, dv, dsinks;
};

// Computes them now, on the calling thread and those of the pool. With `pages`, key and value and their
// gradients are pages (P, Hkv, page, E), and `problem` has all sequences.
void run_backward(const AttentionInputs& inputs, const Cotangents& cotangents, const Problem& problem,
                  Gradients& gradients, const PageTables* pages = nullptr);

}  // namespace tiny_llm_ext::cpu
