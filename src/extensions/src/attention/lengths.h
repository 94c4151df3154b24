// The lengths of the sequences of a batch.
#pragma once

#include "attention/inputs.h"
#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

mx::Shape batch_shape(const AttentionInputs& inputs);

bool has_lengths(const SequenceLengths& lengths);

// The sequences of the batch, from evaluated arrays. Calls `report` for a length out of range.
std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const ReportError& report);

// The same for pages. A context length of 0 or less is an empty sequence.
std::vector<Sequence> read_context_lens(const PagedInputs& inputs, const ReportError& report);

}  // namespace tiny_llm_ext
