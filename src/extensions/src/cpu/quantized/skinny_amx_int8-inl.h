// Skinny GEMM on AMX with int8 tiles: the int8 digits of x take one or two tiles.
#pragma once

#include "cpu/quantized/pack_int8_amx-inl.h"
#include "cpu/quantized/skinny_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <int kTiles, int kBits, Element kElement>
struct SkinnyAmxInt8 {
  typedef Int8Packing<kTiles> Layout;
  static constexpr int kMaxRows = Layout::kMaxRows;

  static size_t packed_bytes(const QuantizedTask& task) { return Layout(task).floats() * sizeof(float); }
  static void prepare_row(const TaskWithOutliers& task, void* packed, int64_t m) {
    with_denormals([&] { prepare_int8_row<kElement>(task, Layout(task), (float*)packed, m); });
  }
  static int64_t pack_parts(const QuantizedTask& task) { return task.num_groups; }
  static void pack(const TaskWithOutliers& task, void* packed, int64_t begin, int64_t end) {
    with_group_size(task, [&](auto group_size) {
      pack_int8_lanes<Int8TileCodec<kBits, group_size()>, kElement>(task, Layout(task), (float*)packed, begin,
                                                                    end);
    });
  }
  static void run(const TaskWithOutliers& task, const void* packed) {
    with_group_size(task, [&](auto group_size) {
      skinny_amx<Int8TileCodec<kBits, group_size()>, Int8Accumulator<kTiles>, kElement>(task, Layout(task),
                                                                                        packed);
    });
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
