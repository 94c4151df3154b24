// The arithmetic of blocked products in float32.
#pragma once

#include "cpu/gemm/blocked-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// FMA in float32. Members: see blocked-inl.h.
struct F32Arithmetic {
  static constexpr int kElementsPerStep = 1;
  static constexpr int kParts = 1;
  static constexpr int kOutputsPerLane = 1;
  static constexpr int kDepthUnit = 1;
  static constexpr int kOutputUnit = 1;
  static constexpr bool kPackedByVector = false;
  static constexpr bool kPrefetches = true;
  static constexpr int kNC = 96;
  static constexpr int kInPlaceTiles = kTaskTiles;
  static constexpr int kKC = 128;
  typedef float Weight;
  typedef FloatMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  static constexpr int in_place_kc(int) { return kKC; }

  template <Element kElement>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t count, int = 0) {
    return load_some<kElement>(row, count);
  }

  VEC_FN F initial_sum(float bias) { return set1(bias); }
  VEC_FN F epilogue_load(const float* c, int64_t) { return load(c); }
  template <Element kElement>
  VEC_FN void epilogue_store(StorageOf<kElement>* y, F x, int64_t count) {
    store_some<kElement>(y, x, count);
  }

  static void multiply(WeightBlock<float> w, int outputs, PackedPanel x, int depth, float* c) {
    gemm_vectors<Mac, true, LayoutA::row_major>(x.vectors, {w.data, w.stride, 1, w.prefetch_distance}, x.data,
                                                depth, c, outputs, x.prefetch(depth));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
