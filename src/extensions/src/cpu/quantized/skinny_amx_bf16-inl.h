// Skinny products on AMX with bfloat16 tiles: x of float32 and float16 as split bf16.
#pragma once

#include "cpu/quantized/pack_bf16_amx-inl.h"
#include "cpu/quantized/skinny_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The codec of weights beside x of a type.
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
  static void pack(const QuantizedTask& task, void* packed) {
    with_group(task, [&](auto group) {
      pack_bf16_lanes<Codec<group()>, kElement>(task, layout(task), (float*)packed);
    });
  }
  static void run(const TaskWithOutliers& task, const void* packed) {
    with_group(task, [&](auto group) {
      typedef Codec<group()> OfGroup;
      const Bf16Packing lanes = layout(task);
      if (lanes.lanes == NarrowAccumulator::kWidth)
        return skinny_amx<OfGroup, NarrowAccumulator, kElement>(task, lanes, packed);
      if (lanes.tiles == 1) return skinny_amx<OfGroup, WideAccumulator<1>, kElement>(task, lanes, packed);
      skinny_amx<OfGroup, WideAccumulator<2>, kElement>(task, lanes, packed);
    });
  }

 private:
  static Bf16Packing layout(const QuantizedTask& task) { return Bf16Packing(task, kSplitParts<kElement>); }

  template <int kGroup>
  using Codec = typename TileCodecFor<kElement, kBits, kGroup>::type;
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
