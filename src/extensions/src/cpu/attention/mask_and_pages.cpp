// Strides of masks, and copies of block tables.
#include "cpu/attention/mask_and_pages.h"

#include <algorithm>

#include "core/divide_up.h"
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

MaskView MaskViews::view(int64_t b, const mx::Shape& batch, int64_t head, int64_t key) const {
  if (!mask_) return {};
  const int64_t offset = batch_offset(b, batch, batch_strides_) + head * head_stride_ + key * key_stride_;
  return {mask_->data<std::byte>() + offset * mask_->itemsize(), kind_, head_stride_, row_stride_,
          key_stride_};
}

PageTables::PageTables(const mx::array& block_table, const mx::array& key_pages,
                       const std::vector<Sequence>& sequences)
    : width_(block_table.shape(1)), count_(key_pages.shape(0)), size_(key_pages.shape(2)) {
  const auto* ids = block_table.data<int32_t>();
  for (int64_t b = 0; b < block_table.shape(0); b++) {
    for (int64_t i = 0; i < width_; i++)
      ids_.push_back(ids[b * block_table.strides(0) + i * block_table.strides(1)]);
    present_.push_back(find_present(ids_.data() + b * width_, divide_up(sequences[b].n_k, size_)));
  }
}

PageTable PageTables::table(int64_t b, const DenseRows& k, const DenseRows& v) const {
  return {ids_.data() + b * width_, count_, size_, k.stride(4), v.stride(4)};
}

MaskView PageTables::mask(int64_t b) const {
  if (present_[b].empty()) return {};
  return {present_[b].data(), MaskKind::boolean, 0, 0, 1};
}

std::vector<uint8_t> PageTables::find_present(const int32_t* ids, int64_t pages) const {
  const auto is_present = [this](int32_t id) { return 0 <= id && id < count_; };
  std::vector<uint8_t> present;
  if (std::all_of(ids, ids + pages, is_present)) return present;
  for (int64_t i = 0; i < pages; i++) present.insert(present.end(), size_, is_present(ids[i]));
  return present;
}

}  // namespace tiny_llm_ext::cpu
