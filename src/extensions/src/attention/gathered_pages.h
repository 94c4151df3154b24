// Attention over a dense copy of the pages, for devices and head sizes without a kernel.
#pragma once

#include "attention/inputs.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// The call with the pages of each sequence copied in the order of its row of the block table: key and value
// (B, Hkv, slots, E), or (Hkv, B * slots, E) for packed queries. The tokens of an id of no page are hidden if
// the call says so; else their keys are NaN, so that the rows that see one are NaN.
AttentionInputs gather_pages(const PagedInputs& inputs, const PagedParams& params, mx::Stream stream);

}  // namespace tiny_llm_ext
