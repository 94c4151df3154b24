// The arithmetic of blocked products in float32.
#pragma once

#include "cpu/gemm/blocked-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// FMA in float32.
//
// An arithmetic says in which unit the blocked driver packs x and weights, how deep its blocks are, and which
// microkernel multiplies them.
struct F32Arithmetic {
  static constexpr int kElementsPerStep = 1;
  static constexpr int kParts = 1;                // bf16 parts of an element (split_bf16-inl.h)
  static constexpr int kOutputsPerLane = 1;       // neighbouring outputs that `outputs` gives in a lane
  static constexpr int kDepthUnit = 1;            // the depth of a block is a multiple of this
  static constexpr int kOutputUnit = 1;           // likewise the outputs of weights that are read in place
  static constexpr bool kPackedByVector = false;  // see blocked-inl.h
  static constexpr bool kPrefetches = true;  // the microkernel prefetches weights for a single row vector
  static constexpr int kNC = 96;    // at most
  static constexpr int kInPlaceTiles = kTaskTiles;  // weights are read in place for up to so many row tiles
  static constexpr int kKC = 128;                // of a packed block of weights
  typedef float Weight;
  typedef FloatMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  // The depth of a block of weights that are read in place, for row tiles of so many vectors.
  static constexpr int in_place_kc(int) { return kKC; }

  // A vector of elements; of split bf16, one part of them.
  template <Element kElement>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t count, int = 0) {
    return load_some<kElement>(row, count);
  }

  // The initial sum.
  VEC_FN F initial_sum(float bias) { return set1(bias); }
  // Epilogue: the sums of outputs across the lanes before they are transposed; the store of a row after.
  VEC_FN F epilogue_load(const float* c, int64_t) { return load(c); }
  template <Element kElement>
  VEC_FN void epilogue_store(StorageOf<kElement>* y, F x, int64_t count) {
    store_some<kElement>(y, x, count);
  }

  static void multiply(WeightBlock<float> w, int outputs, PackedPanel x, int depth, float* c) {
    gemm_vectors<Mac, true, LayoutA::row_major>(x.vectors, {w.data, w.stride, 1, w.ahead}, x.data, depth, c,
                                              outputs, x.prefetch(depth));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
