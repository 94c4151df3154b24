// Reading of lengths, with their checks.
#include "attention/lengths.h"

#include <algorithm>
#include <utility>

#include "attention/arguments/shapes.h"
#include "attention/tiles.h"
#include "core/integers.h"
#include "core/strides.h"

namespace tiny_llm_ext {

mx::Shape batch_shape(const AttentionInputs& inputs) {
  const mx::Shape& shape = inputs.query.shape();
  return mx::Shape(shape.begin(), shape.end() - 3);
}

bool has_lengths(const SequenceLengths& lengths) { return !given_lengths(lengths).empty(); }

std::vector<mx::array> given_lengths(const SequenceLengths& lengths) {
  std::vector<mx::array> given;
  for (const LengthsArgument& argument : kLengthsArguments)
    if (const auto& array = lengths.*argument.member) given.push_back(*array);
  return given;
}

bool are_available(const SequenceLengths& lengths) {
  const std::vector<mx::array> given = given_lengths(lengths);
  return std::all_of(given.begin(), given.end(), [](const mx::array& x) { return x.is_available(); });
}

void check_lengths_arrays(const char* function, const AttentionInputs& inputs, bool mapped) {
  mx::Shape shape = batch_shape(inputs);
  if (inputs.packed()) {
    const mx::array& cu_seqlens = *inputs.cu_seqlens_q;
    if (cu_seqlens.ndim() < 1 || cu_seqlens.ndim() > shape.size() + 1 || cu_seqlens.shape(-1) == 0) {
      reject(function, "cu_seqlens_q", to_text(cu_seqlens.shape()), "(number of sequences + 1,)");
    }
    shape.push_back(cu_seqlens.shape(-1) - 1);
  }
  for (const LengthsArgument& argument : kLengthsArguments) {
    const auto& lengths = inputs.*argument.member;
    if (!lengths) continue;
    const bool cumulative = argument.member == &SequenceLengths::cu_seqlens_q ||
                            argument.member == &SequenceLengths::cu_seqlens_k;
    mx::Shape expected = shape;
    if (cumulative) expected.back()++;
    const bool fits = mapped ? broadcasts_to(lengths->shape(), expected) : lengths->shape() == expected;
    if (!fits || (inputs.packed() && lengths->shape(-1) != expected.back()))
      reject(function, argument.name, to_text(lengths->shape()), to_text(expected));
    // Known from the shape alone, where the values may be unknown.
    const int rows =
        argument.member == &SequenceLengths::cu_seqlens_q ? inputs.query.shape(-2) : inputs.key.shape(-2);
    if (cumulative && shape.back() == 0 && rows > 0)
      reject(function, argument.name, "no sequences", "sequences with " + std::to_string(rows) + " rows");
    if (lengths->dtype() != mx::int32 && lengths->dtype() != mx::int64)
      reject(function, argument.name, to_text(lengths->dtype()), "int32 or int64");
  }
}

// The number of each sequence in an optional array, with its check.
class LengthReader {
 public:
  LengthReader(const char* name, const std::optional<mx::array>& given, mx::Shape batch,
               const ReportError& report)
      : name_(name),
        given_(given),
        batch_(std::move(batch)),
        strides_(given ? broadcast_strides(*given) : mx::Strides{}),
        report_(report) {}

  int64_t operator()(int64_t b, int64_t default_length, int64_t max) const {
    if (!given_) return default_length;
    const int64_t length = integer_at(*given_, batch_offset(b, batch_, strides_));
    if (length < 0 || length > max) {
      report_(name_, std::to_string(length) + " for sequence " + std::to_string(b),
              "0 to " + std::to_string(max));
    }
    return length;
  }

 private:
  const char* name_;
  const std::optional<mx::array>& given_;
  mx::Shape batch_;
  mx::Strides strides_;
  const ReportError& report_;
};

// The first row of each packed sequence of a batch entry, then the number of rows.
static std::vector<int64_t> read_cumulative(const char* name, const mx::array& lengths,
                                            const mx::Shape& batch, int64_t entry, int64_t rows,
                                            const char* rows_of, const ReportError& report) {
  mx::Strides strides = broadcast_strides(lengths);
  const int64_t stride = strides.back();
  strides.pop_back();
  const int64_t first = batch_offset(entry, batch, strides);
  std::vector<int64_t> begin;
  for (int64_t i = 0; i < lengths.shape(-1); i++) {
    begin.push_back(integer_at(lengths, first + i * stride));
    const int64_t least = i == 0 ? 0 : begin[i - 1];
    if (i == 0 ? begin[i] != 0 : begin[i] < least) {
      report(name, std::to_string(begin[i]) + " at position " + std::to_string(i),
             i == 0 ? "0" : "at least " + std::to_string(least) + ", the number before it");
      return std::vector<int64_t>(lengths.shape(-1), 0);
    }
  }
  if (begin.back() != rows) {
    report(name, std::to_string(begin.back()) + " at the end",
           std::to_string(rows) + ", the rows of " + rows_of);
  }
  return begin;
}

static int64_t entries_of(const mx::Shape& batch) {
  int64_t count = 1;
  for (int size : batch) count *= size;
  return count;
}

// The batch axes of packed rows, then the sequences of an entry.
static mx::Shape sequence_axes(mx::Shape batch, const mx::array& cu_seqlens) {
  batch.push_back(cu_seqlens.shape(-1) - 1);
  return batch;
}

// Within a batch entry, queries and keys of a sequence follow those of the previous one.
static std::vector<Sequence> read_packed_sequences(const SequenceLengths& lengths, const mx::Shape& batch,
                                                   int64_t T_q, int64_t T_k, const ReportError& report) {
  const mx::Shape axes = sequence_axes(batch, *lengths.cu_seqlens_q);
  const LengthReader n_q("q_lens", lengths.q_lens, axes, report);
  const LengthReader start("kv_start", lengths.kv_start, axes, report);
  const LengthReader n_k("kv_lens", lengths.kv_lens, axes, report);
  std::vector<Sequence> sequences;
  for (int64_t entry = 0; entry < entries_of(batch); entry++) {
    const auto q = read_cumulative("cu_seqlens_q", *lengths.cu_seqlens_q, batch, entry, T_q, "query", report);
    const auto k = read_cumulative("cu_seqlens_k", *lengths.cu_seqlens_k, batch, entry, T_k, "key", report);
    for (int64_t i = 0; i < axes.back(); i++) {
      const int64_t n = sequences.size(), q_rows = q[i + 1] - q[i], k_rows = k[i + 1] - k[i];
      const int64_t skipped = start(n, 0, k_rows);
      sequences.push_back({.n_q = n_q(n, q_rows, q_rows),
                           .n_k = n_k(n, k_rows - skipped, k_rows - skipped),
                           .q_begin = q[i],
                           .k_begin = k[i] + skipped,
                           .q_rows = q_rows,
                           .k_rows = k_rows,
                           .entry = entry,
                           .index = n});
    }
  }
  return sequences;
}

std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const ReportError& report) {
  if (lengths.cu_seqlens_q) return read_packed_sequences(lengths, batch, L, S, report);
  const int64_t count = entries_of(batch);
  const LengthReader n_q("q_lens", lengths.q_lens, batch, report);
  const LengthReader start("kv_start", lengths.kv_start, batch, report);
  const LengthReader n_k("kv_lens", lengths.kv_lens, batch, report);

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

// Among those whose tokens a query sees.
static void check_page_ids(const PagedInputs& inputs, const PagedParams& params,
                           const std::vector<Sequence>& sequences, const ReportError& report) {
  const mx::array& table = inputs.block_table;
  const int64_t pages = inputs.attention.key.shape(0), size = inputs.attention.key.shape(2);
  with_integers(table, [&](auto read) {
    for (const Sequence& sequence : sequences) {
      const KeyRange keys =
          visible_keys(0, sequence.n_q - 1, sequence.n_q, sequence.n_k, params.left, params.right);
      for (int64_t page = keys.begin / size; page * size < keys.end; page++) {
        const int64_t id = read(sequence.index * table.strides(0) + page * table.strides(1));
        if (0 <= id && id < pages) continue;
        report("block_table",
               std::to_string(id) + " for page " + std::to_string(page) + " of sequence " +
                   std::to_string(sequence.index),
               "0 to " + std::to_string(pages - 1));
      }
    }
  });
}

// Pages are read in place, but for the calls of the course, which may give any arrays.
static void check_pools(const PagedInputs& inputs, const ReportError& report) {
  for (auto [name, pages] :
       {std::pair{"key_pages", &inputs.attention.key}, std::pair{"value_pages", &inputs.attention.value}}) {
    if (pages->status() != mx::array::unscheduled && !last_axis_is_dense(*pages))
      report(name, "gaps between the elements of a row", "dense rows: pages are not copied");
  }
}

std::vector<Sequence> read_paged_sequences(const PagedInputs& inputs, const PagedParams& params,
                                           const ReportError& report) {
  const AttentionInputs& call = inputs.attention;
  const mx::array& context_lens = inputs.context_lens;
  const int count = context_lens.shape(0);
  const int64_t L = call.query.shape(-2), slots = inputs.slots_per_sequence();
  const mx::Shape batch = batch_shape(call);
  const int64_t per_entry = call.packed() ? call.cu_seqlens_q->shape(-1) - 1 : 1;
  std::vector<int64_t> begin;
  for (int64_t entry = 0; call.packed() && entry < entries_of(batch); entry++) {
    const auto rows = read_cumulative("cu_seqlens_q", *call.cu_seqlens_q, batch, entry, L, "query", report);
    begin.insert(begin.end(), rows.begin(), rows.end());
  }
  const LengthReader n_q("q_lens", call.q_lens,
                         call.packed() ? sequence_axes(batch, *call.cu_seqlens_q) : batch, report);
  std::vector<Sequence> sequences(count);
  for (int64_t b = 0; b < count; b++) {
    const int64_t entry = b / per_entry, row = b + entry;  // of `begin`
    const int64_t length = integer_at(context_lens, b * context_lens.strides(0));
    if (length > slots || (length < 0 && call.packed())) {
      report("context_lens", std::to_string(length) + " for sequence " + std::to_string(b),
             (call.packed() ? "0 to the " : "at most the ") + std::to_string(slots) +
                 " slots of its row of block_table");
    }
    const int64_t n_k = std::max<int64_t>(length, 0);
    const int64_t q_rows = call.packed() ? begin[row + 1] - begin[row] : L;
    sequences[b] = {.n_q = n_q(b, q_rows, q_rows),
                    .n_k = n_k,
                    .q_begin = call.packed() ? begin[row] : 0,
                    .k_begin = 0,
                    .q_rows = q_rows,
                    .k_rows = call.packed() ? n_k : slots,
                    .entry = entry,
                    .index = b};
  }
  if (!params.hide_absent && !params.ids_checked) check_page_ids(inputs, params, sequences, report);
  if (call.key.shape(0) < params.checked_pages) {  // a compiled call on another pool
    report("key_pages", std::to_string(call.key.shape(0)) + " pages",
           "at least the " + std::to_string(params.checked_pages) + " that the ids were checked for");
  }
  if (!params.hide_absent) check_pools(inputs, report);
  return sequences;
}

}  // namespace tiny_llm_ext
