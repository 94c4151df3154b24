// Strides of masks, and copies of block tables.
#include "cpu/attention/layout/mask_and_pages.h"

#include "core/integers.h"
#include "core/strides.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

MaskViews::MaskViews(const std::optional<mx::array>& mask, MaskKind kind) : kind_(kind) {
  if (!mask) return;
  mask_ = &*mask;
  batch_strides_ = broadcast_strides(*mask);
  for (int64_t* stride : {&key_stride_, &row_stride_, &head_stride_}) {
    if (batch_strides_.empty()) break;
    *stride = batch_strides_.back();
    batch_strides_.pop_back();
  }
}

MaskView MaskViews::view(int64_t entry, const mx::Shape& batch, int64_t head, int64_t key) const {
  if (!mask_) return {};
  const int64_t offset = batch_offset(entry, batch, batch_strides_) + head * head_stride_ + key * key_stride_;
  return {mask_->data<std::byte>() + offset * mask_->itemsize(), kind_, head_stride_, row_stride_,
          key_stride_};
}

PageTables::PageTables(const mx::array& block_table, int64_t pages, int64_t page_size)
    : width_(block_table.shape(1)), count_(pages), size_(page_size), ids_(block_table.shape(0) * width_) {
  with_integers(block_table, [&](auto read) {
    const int64_t row_stride = block_table.strides(0), stride = block_table.strides(1);
    for (int64_t n = 0; n < std::ssize(ids_); n++) {
      const int64_t id = read(n / width_ * row_stride + n % width_ * stride);
      ids_[n] = 0 <= id && id < count_ ? static_cast<int32_t>(id) : -1;
    }
  });
}

PageTable PageTables::table(const Sequence& sequence, int64_t left, const HeadRows& k,
                            const HeadRows& v) const {
  const int64_t first = first_key(sequence.n_k - sequence.n_q, left) / size_;
  return {ids_.data() + sequence.index * width_, count_, size_, k.entry_stride(), v.entry_stride(), first};
}

}  // namespace tiny_llm_ext::cpu
