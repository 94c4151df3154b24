// The lengths of the sequences of a batch.
#pragma once

#include <array>

#include "attention/inputs.h"
#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

mx::Shape batch_shape(const AttentionInputs& inputs);

struct LengthsArgument {
  const char* name;
  std::optional<mx::array> SequenceLengths::* member;
};

inline constexpr std::array<LengthsArgument, 5> kLengthsArguments = {{
    {"q_lens", &SequenceLengths::q_lens},
    {"kv_start", &SequenceLengths::kv_start},
    {"kv_lens", &SequenceLengths::kv_lens},
    {"cu_seqlens_q", &SequenceLengths::cu_seqlens_q},
    {"cu_seqlens_k", &SequenceLengths::cu_seqlens_k},
}};

bool has_lengths(const SequenceLengths& lengths);

// Throws for wrong shapes and types. With `mapped`, batch axes may also be missing or 1, as mx.vmap leaves
// them.
void check_lengths_arrays(const char* function, const AttentionInputs& inputs, bool mapped = false);

// The given arrays, and whether all of them are evaluated.
std::vector<mx::array> given_lengths(const SequenceLengths& lengths);
bool are_available(const SequenceLengths& lengths);

// The sequences of the batch, from evaluated arrays; L and S are the rows of a batch entry. Calls `report`
// for a length out of range.
std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const ReportError& report);

// The same for pages. Also reports an id of no page among those whose tokens a query sees, unless they are
// hidden or were checked; and for packed queries a negative context, and pages that would have to be copied.
std::vector<Sequence> read_paged_sequences(const PagedInputs& inputs, const PagedParams& params,
                                           const ReportError& report);

}  // namespace tiny_llm_ext
