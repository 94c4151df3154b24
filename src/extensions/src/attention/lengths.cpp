// Reading of lengths, with their checks.
#include "attention/lengths.h"

#include <algorithm>

#include "core/strides.h"

namespace tiny_llm_ext {

mx::Shape batch_shape(const AttentionInputs& inputs) {
  const mx::Shape& shape = inputs.query.shape();
  return mx::Shape(shape.begin(), shape.end() - 3);
}

bool has_lengths(const SequenceLengths& lengths) {
  return lengths.q_lens || lengths.kv_start || lengths.kv_lens;
}

static int64_t read_length(const mx::array& lengths, int64_t offset) {
  return lengths.dtype() == mx::int64 ? lengths.data<int64_t>()[offset] : lengths.data<int32_t>()[offset];
}

std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const ReportError& report) {
  int64_t count = 1;
  for (int size : batch) count *= size;

  auto reader = [&](const char* name, const std::optional<mx::array>& given) {
    mx::Strides strides = given ? broadcast_strides(*given) : mx::Strides{};
    return [=, &batch, &given, &report](int64_t b, int64_t default_length, int64_t max) {
      if (!given) return default_length;
      int64_t length = read_length(*given, batch_offset(b, batch, strides));
      if (length < 0 || length > max) {
        report(name, std::to_string(length) + " for sequence " + std::to_string(b),
               "0 to " + std::to_string(max));
      }
      return length;
    };
  };
  auto n_q = reader("q_lens", lengths.q_lens);
  auto start = reader("kv_start", lengths.kv_start);
  auto n_k = reader("kv_lens", lengths.kv_lens);

  std::vector<Sequence> sequences(count);
  for (int64_t b = 0; b < count; b++) {
    const int64_t queries = n_q(b, L, L), k_begin = start(b, 0, S);
    sequences[b] = {.n_q = queries,
                    .n_k = n_k(b, S - k_begin, S - k_begin),
                    .q_begin = 0,
                    .k_begin = k_begin,
                    .q_rows = L,
                    .k_rows = S,
                    .entry = b,
                    .index = b};
  }
  return sequences;
}

std::vector<Sequence> read_context_lens(const PagedInputs& inputs, const ReportError& report) {
  const mx::array& context_lens = inputs.context_lens;
  const int64_t L = inputs.query.shape(1), slots = inputs.slots_per_sequence();
  std::vector<Sequence> sequences;
  for (int64_t b = 0; b < context_lens.shape(0); b++) {
    const int64_t length = context_lens.data<int32_t>()[b * context_lens.strides(0)];
    if (length > slots) {
      report("context_lens", std::to_string(length) + " for sequence " + std::to_string(b),
             "at most the " + std::to_string(slots) + " slots of its row of block_table");
    }
    sequences.push_back({.n_q = L,
                         .n_k = std::max<int64_t>(length, 0),
                         .q_begin = 0,
                         .k_begin = 0,
                         .q_rows = L,
                         .k_rows = slots,
                         .entry = b,
                         .index = b});
  }
  return sequences;
}

}  // namespace tiny_llm_ext
