// Kernel, grid and features of an attention launch, for the dispatch and for the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/element.h"
#include "core/mask.h"
#include "metal/kernels/fast_arguments.h"

namespace tiny_llm_ext::metal {

constexpr int kThreadgroupMemory = 32768;  // bytes, the limit of every Apple GPU

struct Size {
  uint32_t x, y, z;
};

struct Launch {
  std::string kernel;
  Size threadgroups;
  Size threads;                        // of each threadgroup
  std::vector<int32_t> features = {};  // function constants 0, 1, ..., all of type int

  // The name of the kernel compiled for these features.
  std::string pipeline() const {
    std::string name = kernel;
    for (int32_t feature : features) name += "_" + std::to_string(feature);
    return name;
  }
};

constexpr uint32_t kLanes = 32;
constexpr uint32_t kRowTile = 32;

// One threadgroup for each head and tile of query rows.
inline Size attention_grid(int32_t N, int32_t L) {
  return {static_cast<uint32_t>(N), (static_cast<uint32_t>(L) + kRowTile - 1) / kRowTile, 1};
}

// The readable kernel: one SIMD group for each row of the tile.
inline Launch readable_attention(int32_t N, int32_t L) {
  return {"flash_attention_f32_e128", attention_grid(N, L), {kLanes, kRowTile, 1}};
}

constexpr int kReadableAttentionHeadSize = 128;  // and all smaller ones
static_assert(2 * 32 * kReadableAttentionHeadSize * sizeof(float) == kThreadgroupMemory);

// The head sizes that the fast kernels are compiled for. The kernels pad others, up to the last, in their
// tiles.
constexpr int32_t kHeadSizes[] = {64, 80, 96, 128, 256};
constexpr int32_t kMostHeadSize = 256;

inline int32_t compiled_head_size(int32_t E) {
  for (int32_t size : kHeadSizes) {
    if (E <= size) return size;
  }
  return kMostHeadSize;
}

inline std::string kernel_name(const char* step, Element element) {
  constexpr const char* kElements[] = {"f32", "f16", "bf16"};
  return std::string("attention_") + step + "_" + kElements[static_cast<int>(element)];
}

// Indexed by AttentionFeature. The struct does not tell whether there are a mask and sinks, so they are
// arguments.
inline std::vector<int32_t> attention_features(const FastAttentionArguments& args, MaskKind mask,
                                               bool sinks) {
  return {
      static_cast<int32_t>(mask),
      args.left < kUnboundedWindow || args.right < kUnboundedWindow,
      args.softcap > 0,
      sinks,
      args.q_lens.given || args.kv_start.given || args.kv_lens.given,
      args.E < compiled_head_size(args.E),
  };
}

// The fast kernel for many query rows: one SIMD group for each 8 rows of the tile.
inline Launch prefill_attention(const FastAttentionArguments& args, Element element, MaskKind mask,
                                bool sinks) {
  return {kernel_name("prefill", element) + "_e" + std::to_string(compiled_head_size(args.E)),
          attention_grid(args.N, args.L),
          {kLanes, kRowTile / 8, 1},
          attention_features(args, mask, sinks)};
}

// The decode kernel takes up to this many query rows.
constexpr int32_t kMostDecodeRows = 8;

// A fixed size, so that a row's result does not depend on the rest of the batch.
constexpr int32_t kKeysPerSplit = 512;

inline int32_t split_count(const FastAttentionArguments& args) {
  return args.S > args.keys_per_split ? (args.S + args.keys_per_split - 1) / args.keys_per_split : 1;
}

// The fast kernel for a few query rows: one threadgroup for each row and split of the keys. Several splits
// write float32 parts for merge_attention(): output (splits, B, heads, L, E) and, in place of the
// log-sum-exp, the maximum and the sum of the weights (splits, B, heads, L, 2).
inline Launch decode_attention(const FastAttentionArguments& args, Element element, MaskKind mask,
                               bool sinks) {
  constexpr uint32_t kSimdGroups = 8;
  int32_t splits = split_count(args);
  const char* step = splits > 1 ? "decode_split" : "decode";
  return {kernel_name(step, element) + "_e" + std::to_string(compiled_head_size(args.E)),
          {static_cast<uint32_t>(args.N), static_cast<uint32_t>(args.L), static_cast<uint32_t>(splits)},
          {kLanes, kSimdGroups, 1},
          attention_features(args, mask, sinks)};
}

// Follows several splits: one threadgroup for each query row, with the slots of MergeSlot.
inline Launch merge_attention(const FastAttentionArguments& args, Element element) {
  Size grid = {static_cast<uint32_t>(args.N), static_cast<uint32_t>(args.L), 1};
  return {kernel_name("merge", element), grid, {128, 1, 1}};
}

// The GPU reads the structs as bytes, by these offsets.
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

static_assert(offsetof(FastAttentionArguments, query) == 0);
static_assert(offsetof(FastAttentionArguments, key) == 24);
static_assert(offsetof(FastAttentionArguments, value) == 48);
static_assert(offsetof(FastAttentionArguments, mask) == 72);
static_assert(offsetof(FastAttentionArguments, sinks_batch_stride) == 104);
static_assert(offsetof(FastAttentionArguments, sinks_head_stride) == 112);
static_assert(offsetof(FastAttentionArguments, N) == 120);
static_assert(offsetof(FastAttentionArguments, heads) == 124);
static_assert(offsetof(FastAttentionArguments, group) == 128);
static_assert(offsetof(FastAttentionArguments, L) == 132);
static_assert(offsetof(FastAttentionArguments, S) == 136);
static_assert(offsetof(FastAttentionArguments, E) == 140);
static_assert(offsetof(FastAttentionArguments, left) == 144);
static_assert(offsetof(FastAttentionArguments, right) == 148);
static_assert(offsetof(FastAttentionArguments, scale) == 152);
static_assert(offsetof(FastAttentionArguments, softcap) == 156);
static_assert(offsetof(FastAttentionArguments, keys_per_split) == 160);
static_assert(offsetof(FastAttentionArguments, q_lens) == 164);
static_assert(offsetof(FastAttentionArguments, kv_start) == 172);
static_assert(offsetof(FastAttentionArguments, kv_lens) == 180);

static_assert(kNoMask == static_cast<int>(MaskKind::none));
static_assert(kBooleanMask == static_cast<int>(MaskKind::boolean));
static_assert(kFloatMask == static_cast<int>(MaskKind::f32));
static_assert(kHalfMask == static_cast<int>(MaskKind::f16));
static_assert(kBfloatMask == static_cast<int>(MaskKind::bf16));

}  // namespace tiny_llm_ext::metal
