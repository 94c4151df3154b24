// Inputs of the score transform: tanh for the softcap, the mask tile, and each row's visible keys.
#pragma once

#include "cpu/attention/query_tile-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kMaxFloat = 3.402823466e38f;

// An odd polynomial near 0, where 1 - 2t / (1 + t) would cancel.
VEC_FN F tanh(F x) {
  F size = max(sub(zero(), x), x);
  F t = exp2(mul(size, set1(-2 * kLog2e)));
  F far = sub(set1(1), div(add(t, t), add(set1(1), t)));
  far = select(less_equal(zero(), x), far, sub(zero(), far));
  F x2 = mul(x, x);
  F p = fma(x2, set1(-0.00563553f), set1(0.02057697f));  // fitted on |x| <= 0.63, within 6e-9
  p = fma(p, x2, set1(-0.05372062f));
  p = fma(p, x2, set1(0.13331211f));
  p = fma(p, x2, set1(-0.33333273f));
  F near = fma(mul(p, x2), x, x);
  return select(less_equal(size, set1(0.625f)), near, far);
}

// kLanes mask entries of one row as additive values; -inf hides a key.
VEC_FN F read_mask(const MaskView& mask, int64_t offset, int64_t count) {
  if (count > kLanes) count = kLanes;
  float part[kLanes] = {};
  uint16_t half[kLanes] = {};
  for (int64_t j = 0; j < count; j++) {
    int64_t at = offset + j * mask.key_stride;
    if (mask.kind == MaskKind::boolean)
      part[j] = ((const uint8_t*)mask.data)[at] ? 0 : -INFINITY;
    else if (mask.kind == MaskKind::f32)
      part[j] = ((const float*)mask.data)[at];
    else
      half[j] = ((const uint16_t*)mask.data)[at];
  }
  if (mask.kind == MaskKind::f16) return load_f16(half);
  if (mask.kind == MaskKind::bf16) return load_bf16(half);
  return load(part);
}

// The mask tile in the layout of the scores: out[key][lane].
static void pack_mask(const ForwardTask& task, const QueryTile& tile, int64_t begin, int keys, float* out) {
  const MaskView& mask = task.mask;
  auto offset = [&](int row, int64_t key) __attribute__((always_inline)) {
    int64_t flat = tile.begin + row;
    return (flat % task.gqa_heads) * mask.head_stride + (flat / task.gqa_heads) * mask.row_stride +
           (begin + key) * mask.key_stride;
  };
  if (mask.row_stride == 0 && (mask.head_stride == 0 || task.gqa_heads == 1)) {
    for (int key = 0; key < keys; key += kLanes) {
      float column[kLanes];
      store(column, read_mask(mask, offset(0, key), keys - key));
      for (int j = 0; j < kLanes && key + j < keys; j++)
        for (int v = 0; v < tile.vectors; v++)
          store(out + ((key + j) * tile.vectors + v) * kLanes, set1(column[j]));
    }
    return;
  }
  auto read = [&](int row, int key)
                  __attribute__((always_inline)) { return read_mask(mask, offset(row, key), keys - key); };
  if (tile.lanes_per_row == 1) return pack_transposed(tile.rows, tile.vectors, keys, out, read);
  for (int row = 0; row < tile.rows; row++)
    for (int key = 0; key < keys; key += kLanes) {
      float part[kLanes];
      store(part, read(row, key));
      for (int k = 0; k < kLanes && key + k < keys; k++)
        for (int j = 0; j < tile.lanes_per_row; j++)
          out[(key + k) * kLanes + row * tile.lanes_per_row + j] = part[k];
    }
}

// First and last visible key of each lane, relative to the first key of a key tile.
struct RowLimits {
  float first[kTileLanes], last[kTileLanes];
};

static void fill_row_limits(const QueryTile& tile, int64_t begin, int keys, RowLimits& limits) {
  for (int lane = 0; lane < tile.lanes(); lane++) {
    int row = lane / tile.lanes_per_row;
    int64_t first = row < tile.rows ? tile.first[row] - begin : 0;
    int64_t last = row < tile.rows ? tile.last[row] - begin : keys;
    limits.first[lane] = first > keys ? keys : first < 0 ? 0 : (float)first;
    limits.last[lane] = last > keys ? keys : last < -1 ? -1 : (float)last;
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
