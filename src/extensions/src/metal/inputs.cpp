// Batch axes are merged into one; arrays without a common batch stride are copied.
#include "metal/inputs.h"

#include "attention/gpu_layout.h"
#include "attention/lengths.h"
#include "core/strides.h"
#include "metal/copy.h"

namespace tiny_llm_ext::metal {

AttentionArguments KernelInputs::bind_readable() {
  bind_rows(kQuerySlot, call_.query, true);
  bind_rows(kKeySlot, call_.key, true);
  bind_rows(kValueSlot, call_.value, true);
  MaskStrides mask = bind_mask();
  return {mask.batch,
          mask.head,
          mask.row,
          mask.key,
          static_cast<int32_t>(problem_.L),
          static_cast<int32_t>(problem_.S),
          static_cast<int32_t>(problem_.E),
          static_cast<int32_t>(problem_.Hq),
          static_cast<int32_t>(problem_.gqa_heads()),
          problem_.scale,
          problem_.right == 0,
          static_cast<int32_t>(problem_.mask)};
}

void KernelInputs::bind_fast(FastAttentionArguments& args) {
  args.query = bind_rows(kQuerySlot, call_.query, false);
  args.key = bind_rows(kKeySlot, call_.key, false);
  args.value = bind_rows(kValueSlot, call_.value, false);
  args.mask = bind_mask();
  if (call_.sinks) {
    Entry sinks = along_batch(*call_.sinks, 1);
    args.sinks_batch_stride = sinks.batch;
    args.sinks_head_stride = sinks.trailing[0];
    bind(kSinksSlot, sinks.array);
  } else {
    bind_nothing(kSinksSlot);
  }
  args.q_lens = bind_lengths(kQueryLengthsSlot, call_.q_lens);
  args.kv_start = bind_lengths(kKeyStartsSlot, call_.kv_start);
  args.kv_lens = bind_lengths(kKeyLengthsSlot, call_.kv_lens);
}

HeadStrides KernelInputs::bind_rows(int slot, const mx::array& rows, bool dense) {
  const mx::Shape batch = batch_shape(call_);
  const mx::array usable = gpu_reads_in_place(rows, batch, dense) ? rows : copy(rows, rows.shape());
  bind(slot, usable);
  return {batch_stride(usable, 3, batch).value_or(0), usable.strides(-3), usable.strides(-2)};
}

MaskStrides KernelInputs::bind_mask() {
  if (!call_.mask) {
    bind_nothing(kMaskSlot);
    return {};
  }
  Entry mask = along_batch(*call_.mask, 3);
  bind(kMaskSlot, mask.array);
  return {mask.batch, mask.trailing[0], mask.trailing[1], mask.trailing[2]};
}

LengthsInput KernelInputs::bind_lengths(int slot, const std::optional<mx::array>& lengths) {
  if (!lengths) {
    bind_nothing(slot);
    return {};
  }
  Entry entry = along_batch(*lengths, 0);
  bind(slot, entry.array);
  return {1, static_cast<int32_t>(entry.batch * (entry.array.itemsize() / 4))};
}

KernelInputs::Entry KernelInputs::along_batch(const mx::array& array, int trailing) {
  const mx::Shape batch = batch_shape(call_);
  const std::optional<mx::Shape> copied = gpu_copy_shape(array, trailing, batch);
  const mx::array usable = copied ? copy(array, *copied) : array;
  mx::Strides strides = broadcast_strides(usable);
  while (static_cast<int>(strides.size()) < trailing) strides.insert(strides.begin(), 0);
  strides.erase(strides.begin(), strides.end() - trailing);
  return {usable, *batch_stride(usable, trailing, batch), strides};
}

mx::array KernelInputs::copy(const mx::array& array, const mx::Shape& shape) {
  copies_.push_back(dense_copy(array, shape, stream_));
  return copies_.back();
}

void KernelInputs::bind(int slot, const mx::array& array) {
  if (array.size() == 0) return bind_nothing(slot);  // an empty array may have no memory
  bindings_.push_back({slot, array});
}

// Binds the query, the first buffer, to a slot that is not read but needs a buffer.
void KernelInputs::bind_nothing(int slot) { bindings_.push_back({slot, bindings_.front().array}); }

}  // namespace tiny_llm_ext::metal
