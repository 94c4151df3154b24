// Reading of lengths, with their checks.
#include "attention/lengths.h"

#include <algorithm>
#include <utility>

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

void check_lengths_arrays(const char* function, const AttentionInputs& inputs) {
  mx::Shape shape = batch_shape(inputs);
  if (inputs.packed()) {
    const mx::array& cu_seqlens = *inputs.cu_seqlens_q;
    if (cu_seqlens.ndim() != 1 || cu_seqlens.size() == 0) {
      reject(function, "cu_seqlens_q", to_text(cu_seqlens.shape()), "(number of sequences + 1,)");
    }
    shape = {cu_seqlens.shape(0) - 1};
  }
  for (const LengthsArgument& argument : kLengthsArguments) {
    const auto& lengths = inputs.*argument.member;
    if (!lengths) continue;
    const bool cumulative = argument.member == &SequenceLengths::cu_seqlens_q ||
                            argument.member == &SequenceLengths::cu_seqlens_k;
    const mx::Shape expected = cumulative ? mx::Shape{shape[0] + 1} : shape;
    if (lengths->shape() != expected)
      reject(function, argument.name, to_text(lengths->shape()), to_text(expected));
    // Known from the shape alone, where the values may be unknown.
    const int rows =
        argument.member == &SequenceLengths::cu_seqlens_q ? inputs.query.shape(-2) : inputs.key.shape(-2);
    if (cumulative && shape[0] == 0 && rows > 0)
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

// The first row of each packed sequence, then the number of rows.
static std::vector<int64_t> read_cumulative(const char* name, const mx::array& lengths, int64_t rows,
                                            const char* rows_of, const ReportError& report) {
  std::vector<int64_t> begin;
  for (int64_t i = 0; i < lengths.shape(0); i++) {
    begin.push_back(integer_at(lengths, i * lengths.strides(0)));
    const int64_t least = i == 0 ? 0 : begin[i - 1];
    if (i == 0 ? begin[i] != 0 : begin[i] < least) {
      report(name, std::to_string(begin[i]) + " at position " + std::to_string(i),
             i == 0 ? "0" : "at least " + std::to_string(least) + ", the number before it");
      return std::vector<int64_t>(lengths.shape(0), 0);
    }
  }
  if (begin.back() != rows) {
    report(name, std::to_string(begin.back()) + " at the end",
           std::to_string(rows) + ", the rows of " + rows_of);
  }
  return begin;
}

// Queries and keys of a sequence follow those of the previous one.
static std::vector<Sequence> read_packed_sequences(const SequenceLengths& lengths, int64_t T_q, int64_t T_k,
                                                   const ReportError& report) {
  const std::vector<int64_t> q = read_cumulative("cu_seqlens_q", *lengths.cu_seqlens_q, T_q, "query", report);
  const std::vector<int64_t> k = read_cumulative("cu_seqlens_k", *lengths.cu_seqlens_k, T_k, "key", report);
  const int count = static_cast<int>(q.size()) - 1;
  const LengthReader n_q("q_lens", lengths.q_lens, {count}, report);
  const LengthReader start("kv_start", lengths.kv_start, {count}, report);
  const LengthReader n_k("kv_lens", lengths.kv_lens, {count}, report);
  std::vector<Sequence> sequences(count);
  for (int64_t b = 0; b < count; b++) {
    const int64_t q_rows = q[b + 1] - q[b], k_rows = k[b + 1] - k[b], skipped = start(b, 0, k_rows);
    sequences[b] = {.n_q = n_q(b, q_rows, q_rows),
                    .n_k = n_k(b, k_rows - skipped, k_rows - skipped),
                    .q_begin = q[b],
                    .k_begin = k[b] + skipped,
                    .q_rows = q_rows,
                    .k_rows = k_rows,
                    .entry = 0,
                    .index = b};
  }
  return sequences;
}

std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const ReportError& report) {
  if (lengths.cu_seqlens_q) return read_packed_sequences(lengths, L, S, report);
  int64_t count = 1;
  for (int size : batch) count *= size;

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
  for (const Sequence& sequence : sequences) {
    const KeyRange keys =
        visible_keys(0, sequence.n_q - 1, sequence.n_q, sequence.n_k, params.left, params.right);
    for (int64_t page = keys.begin / size; page * size < keys.end; page++) {
      const int64_t id = integer_at(table, sequence.index * table.strides(0) + page * table.strides(1));
      if (0 <= id && id < pages) continue;
      report("block_table",
             std::to_string(id) + " for page " + std::to_string(page) + " of sequence " +
                 std::to_string(sequence.index),
             "0 to " + std::to_string(pages - 1));
    }
  }
}

// Pages of packed queries are read in place.
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
  std::vector<int64_t> begin;
  if (call.packed()) begin = read_cumulative("cu_seqlens_q", *call.cu_seqlens_q, L, "query", report);
  const LengthReader n_q("q_lens", call.q_lens, {count}, report);
  std::vector<Sequence> sequences(count);
  for (int64_t b = 0; b < count; b++) {
    const int64_t length = integer_at(context_lens, b * context_lens.strides(0));
    if (length > slots || (length < 0 && call.packed())) {
      report("context_lens", std::to_string(length) + " for sequence " + std::to_string(b),
             (call.packed() ? "0 to the " : "at most the ") + std::to_string(slots) +
                 " slots of its row of block_table");
    }
    const int64_t n_k = std::max<int64_t>(length, 0);
    const int64_t q_rows = call.packed() ? begin[b + 1] - begin[b] : L;
    sequences[b] = {.n_q = n_q(b, q_rows, q_rows),
                    .n_k = n_k,
                    .q_begin = call.packed() ? begin[b] : 0,
                    .k_begin = 0,
                    .q_rows = q_rows,
                    .k_rows = call.packed() ? n_k : slots,
                    .entry = call.packed() ? 0 : b,
                    .index = b};
  }
  if (!params.hide_absent && !params.ids_checked) check_page_ids(inputs, params, sequences, report);
  if (call.packed()) check_pools(inputs, report);
  return sequences;
}

}  // namespace tiny_llm_ext
