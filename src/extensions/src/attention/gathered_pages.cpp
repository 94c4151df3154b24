// The copy is made of MLX operations, so it has derivatives.
#include "attention/gathered_pages.h"

#include <algorithm>
#include <limits>

#include "core/integers.h"

namespace tiny_llm_ext {
namespace {

// The contexts as lengths of keys, host numbers where they are known: the check of unevaluated lengths waits
// for them. A negative context of a batch is an empty one.
mx::array key_lengths(const PagedInputs& inputs, mx::Stream stream) {
  const mx::array& given = inputs.context_lens;
  const bool packed = inputs.attention.packed();
  if (!given.is_available()) {
    const mx::array lengths = mx::astype(given, mx::int64, stream);
    return packed ? lengths : mx::maximum(lengths, mx::array(int64_t{0}, mx::int64), stream);
  }
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < given.shape(0); b++) {
    const int64_t length = integer_at(given, b * given.strides(0));
    lengths.push_back(packed ? length : std::max<int64_t>(length, 0));
  }
  return mx::array(lengths.begin(), given.shape(), mx::int64);
}

// Which ids of the table are those of pages (B, width).
mx::array present_pages(const mx::array& table, int count, mx::Stream stream) {
  return mx::logical_and(mx::greater_equal(table, mx::array(0), stream),
                         mx::less(table, mx::array(count), stream), stream);
}

// Pages (P, Hkv, page, E) in the order of the table; `absent` in the place of those that do not exist.
mx::array in_order(const mx::array& pages, const mx::array& table, float absent, bool packed,
                   mx::Stream stream) {
  const int count = pages.shape(0), heads = pages.shape(1), size = pages.shape(2), E = pages.shape(3);
  const int B = table.shape(0), width = table.shape(1);
  const mx::array filler = mx::astype(mx::array(absent), pages.dtype(), stream);
  mx::array gathered = mx::broadcast_to(filler, {B, width, heads, size, E}, stream);
  if (count > 0) {
    const mx::array present = present_pages(table, count, stream);
    const mx::array ids = mx::where(present, table, mx::array(int64_t{0}, mx::int64), stream);
    gathered = mx::where(mx::expand_dims(present, {2, 3, 4}, stream), mx::take(pages, ids, 0, stream), filler,
                         stream);
  }
  const std::vector<int> order = packed ? std::vector{2, 0, 1, 3, 4} : std::vector{0, 2, 1, 3, 4};
  const mx::Shape shape =
      packed ? mx::Shape{heads, B * width * size, E} : mx::Shape{B, heads, width * size, E};
  return mx::reshape(mx::transpose(gathered, order, stream), shape, stream);
}

}  // namespace

AttentionInputs gather_pages(const PagedInputs& inputs, const PagedParams& params, mx::Stream stream) {
  const AttentionInputs& call = inputs.attention;
  const mx::array table = mx::astype(inputs.block_table, mx::int64, stream);
  const auto dense = [&](const mx::array& pages, float absent) {
    return in_order(pages, table, absent, call.packed(), stream);
  };
  const bool hidden = params.hide_absent && !call.packed();
  const float absent_key = hidden ? 0 : std::numeric_limits<float>::quiet_NaN();
  AttentionInputs gathered(call.query, dense(call.key, absent_key), dense(call.value, 0));
  if (hidden) {
    const mx::array present = present_pages(table, call.key.shape(0), stream);
    const mx::array visible = mx::repeat(present, call.key.shape(2), 1, stream);
    gathered.mask = mx::expand_dims(visible, {1, 2}, stream);
  }
  gathered.sinks = call.sinks;
  gathered.q_lens = call.q_lens;
  gathered.kv_lens = key_lengths(inputs, stream);
  if (call.packed()) {
    std::vector<int64_t> begin;
    for (int64_t b = 0; b <= inputs.block_table.shape(0); b++)
      begin.push_back(b * inputs.slots_per_sequence());
    gathered.cu_seqlens_q = call.cu_seqlens_q;
    gathered.cu_seqlens_k = mx::array(begin.begin(), {static_cast<int>(begin.size())}, mx::int64);
  }
  return gathered;
}

}  // namespace tiny_llm_ext
