// Skinny GEMM on AMX with bfloat16 tiles: x of float32 and float16 as split bf16.
#pragma once

#include "cpu/quantized/pack_bf16_amx-inl.h"
#include "cpu/quantized/skinny_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Tile codec by the type of x: bfloat16 x takes q / 4 + 4, split bf16 centred weights.
template <Element, int kBits, int kGroup>
struct TileCodecFor {
  typedef CentredBf16TileCodec<kBits, kGroup / kBf16Step> type;
};
template <int kBits, int kGroup>
struct TileCodecFor<Element::bf16, kBits, kGroup> {
  typedef Bf16TileCodec<kBits, kGroup / kBf16Step> type;
};

template <int kBits, Element kElement>
struct SkinnyAmxBf16 {
  static constexpr int kMaxRows = kMaxRowTiles * kLanes;

  static size_t packed_bytes(const QuantizedTask& task) { return layout(task).floats() * sizeof(float); }
  static void prepare_row(const TaskWithOutliers& task, void* packed, int64_t m) {
    with_group_size(task, [&](auto group_size) {
      prepare_bf16_row<Codec<group_size()>, kElement>(task, layout(task), (float*)packed, m);
    });
  }
  static int64_t pack_parts(const QuantizedTask& task) { return task.num_groups; }
  static void pack(const TaskWithOutliers& task, void* packed, int64_t begin, int64_t end) {
    with_group_size(task, [&](auto group_size) {
      pack_bf16_lanes<Codec<group_size()>, kElement>(task, layout(task), (float*)packed, begin, end);
    });
  }
  static void run(const TaskWithOutliers& task, const void* packed) {
    with_group_size(task, [&](auto group_size) {
      typedef Codec<group_size()> OfGroup;
      const Bf16Packing packing = layout(task);
      if (packing.lanes == NarrowAccumulator::kWidth)
        return skinny_amx<OfGroup, NarrowAccumulator, kElement>(task, packing, packed);
      if (packing.tiles == 1) return skinny_amx<OfGroup, WideAccumulator<1>, kElement>(task, packing, packed);
      skinny_amx<OfGroup, WideAccumulator<2>, kElement>(task, packing, packed);
    });
  }

 private:
  static Bf16Packing layout(const QuantizedTask& task) { return Bf16Packing(task, kSplitParts<kElement>); }

  template <int kGroup>
  using Codec = typename TileCodecFor<kElement, kBits, kGroup>::type;
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
