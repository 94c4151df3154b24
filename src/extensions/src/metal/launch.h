// How the host starts an attention kernel. What dispatches and what tests the kernels ask here for the same
// grid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cpu/kernels.h"
#include "metal/kernels/arguments.h"

namespace tiny_llm_ext::metal {

constexpr int kThreadgroupMemory = 32768;  // bytes, the limit of every Apple GPU

struct Size {
  uint32_t x, y, z;
};

struct Launch {
  std::string kernel;
  Size threadgroups;
  Size threads;  // of each threadgroup
};

constexpr uint32_t kLanes = 32;
constexpr uint32_t kRowTile = 32;

inline std::string kernel_name(const char* step, cpu::Element element) {
  constexpr const char* kElements[] = {"f32", "f16", "bf16"};
  return std::string("attention_") + step + "_" + kElements[static_cast<int>(element)];
}

// A threadgroup for each head and each tile of query rows.
inline Size attention_grid(int32_t N, int32_t L) {
  return {static_cast<uint32_t>(N), (static_cast<uint32_t>(L) + kRowTile - 1) / kRowTile, 1};
}

// The readable kernel: a SIMD group for each row of the tile.
inline Launch readable_attention(int32_t N, int32_t L) {
  return {"flash_attention_f32_e128", attention_grid(N, L), {kLanes, kRowTile, 1}};
}

constexpr int kReadableAttentionHeadSize = 128;  // and all smaller ones
static_assert(2 * 32 * kReadableAttentionHeadSize * sizeof(float) == kThreadgroupMemory);

// The fast kernel for many query rows: a SIMD group for each 8 rows of the tile. E is 64, 80, 96, 128 or 256.
inline Launch prefill_attention(int32_t N, int32_t L, int32_t E, cpu::Element element) {
  return {kernel_name("prefill", element) + "_e" + std::to_string(E),
          attention_grid(N, L),
          {kLanes, kRowTile / 8, 1}};
}

// The fast kernel for a few query rows: a threadgroup for each, and for each split of the keys.
inline Launch decode_attention(int32_t N, int32_t L, int32_t E, cpu::Element element, int32_t splits) {
  constexpr uint32_t kSimdGroups = 8;
  Size grid = {static_cast<uint32_t>(N), static_cast<uint32_t>(L), static_cast<uint32_t>(splits)};
  return {kernel_name(splits > 1 ? "decode_split" : "decode", element) + "_e" + std::to_string(E),
          grid,
          {kLanes, kSimdGroups, 1}};
}

// Behind the splits: a threadgroup for each query row.
inline Launch merge_attention(int32_t N, int32_t L, cpu::Element element) {
  Size grid = {static_cast<uint32_t>(N), static_cast<uint32_t>(L), 1};
  return {kernel_name("merge", element), grid, {128, 1, 1}};
}

// The GPU reads the struct as bytes, by these offsets.
static_assert(offsetof(AttentionArguments, mask_batch_stride) == 0);
static_assert(offsetof(AttentionArguments, mask_head_stride) == 8);
static_assert(offsetof(AttentionArguments, mask_row_stride) == 16);
static_assert(offsetof(AttentionArguments, mask_key_stride) == 24);
static_assert(offsetof(AttentionArguments, L) == 32);
static_assert(offsetof(AttentionArguments, S) == 36);
static_assert(offsetof(AttentionArguments, E) == 40);
static_assert(offsetof(AttentionArguments, heads) == 44);
static_assert(offsetof(AttentionArguments, group) == 48);
static_assert(offsetof(AttentionArguments, scale) == 52);
static_assert(offsetof(AttentionArguments, causal) == 56);
static_assert(offsetof(AttentionArguments, mask_kind) == 60);
static_assert(offsetof(AttentionArguments, N) == 64);
static_assert(offsetof(AttentionArguments, keys_per_split) == 68);

static_assert(kNoMask == static_cast<int>(cpu::MaskKind::none));
static_assert(kBooleanMask == static_cast<int>(cpu::MaskKind::boolean));
static_assert(kFloatMask == static_cast<int>(cpu::MaskKind::f32));
static_assert(kHalfMask == static_cast<int>(cpu::MaskKind::f16));
static_assert(kBfloatMask == static_cast<int>(cpu::MaskKind::bf16));

}  // namespace tiny_llm_ext::metal
