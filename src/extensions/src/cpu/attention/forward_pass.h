// The fused forward pass of one call.
#pragma once

#include "attention/inputs.h"
#include "attention/problem.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext::cpu {

// Where a forward pass reads and writes: rows by entry of `batch`, but of pages the entries of k and v are
// the pages, and their batch is {1}.
struct ForwardOperands {
  mx::Shape batch;
  HeadRows q, k, v, o, lse;
};

// Computes the output and log-sum-exp now, on the calling thread and those of the pool. There is no mask, and
// there are no sinks.
void run_forward(const ForwardOperands& operands, const Problem& problem, const PageTables* pages = nullptr);

// The same of arrays, with mask and sinks. Output and log-sum-exp have memory; the last axis of `o` is dense;
// all other strides are free. With `pages`, key and value
// are pages (P, Hkv, page, E).
void run_forward(const AttentionInputs& inputs, const Problem& problem, mx::array& o, mx::array& lse,
                 const PageTables* pages = nullptr);

// The sequences of the batch of an evaluation, once their lengths are computed; empty without lengths.
std::vector<Sequence> wait_for_sequences(const AttentionInputs& call, mlx::core::Stream stream);
std::vector<Sequence> wait_for_sequences(const PagedInputs& call, const PagedParams& params,
                                         mlx::core::Stream stream);

}  // namespace tiny_llm_ext::cpu
