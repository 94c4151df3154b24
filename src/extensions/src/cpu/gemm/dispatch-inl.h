// Products with dense weights: y (M, N) = x (M, K) w^T + bias, sums in float32.
//
// Rows stream where that is faster, in the form that is as fast as memory; others take one that is as fast as
// the multiply units. They round differently, so a row's bits depend on which of them it is, but on nothing
// else.
#pragma once

#include "cpu/gemm/skinny-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <class Product, Element kElement, class Ahead = FarAhead>
struct StreamedLinear {
  static size_t packed_bytes(const LinearTask& task) {
    return streamed_x_floats<Product>(task) * sizeof(float);
  }
  static void pack(const LinearTask& task, void* packed) {
    pack_streamed<Product, kElement>(task, (float*)packed);
  }
  static size_t scratch_bytes(const LinearTask& task) { return streamed_sums_floats(task) * sizeof(float); }
  static void run(const LinearTask& task, const void* packed, void* scratch) {
    stream_dense<Product, kElement, Ahead>(task, (const float*)packed, (float*)scratch);
  }

  static constexpr LinearForm form = {packed_bytes, pack,       scratch_bytes, run,
                                      true,         kTileLanes, kProductTiles, Product::kTaskOutputs};
};

template <class Product, Element kElement>
struct TiledLinear {
  static size_t packed_bytes(const LinearTask& task) {
    const ProductTask all = product_of(task);
    return all.tiles() * packed_floats<Product>(all.K) * sizeof(float);
  }
  static void pack(const LinearTask& task, void* packed) {
    pack_product<Product, kElement>(product_of(task), (float*)packed);
  }
  static size_t scratch_bytes(const LinearTask& task) { return product_bytes<Product>(product_of(task)); }
  static void run(const LinearTask& task, const void* packed, void* scratch) {
    product<Product, kElement>(product_of(task), DenseWeights<kElement>{task}, (const float*)packed,
                               (float*)scratch);
  }

  static constexpr LinearForm form = {packed_bytes, pack,       scratch_bytes, run,
                                      false,        kTileLanes, kProductTiles, Product::kTaskOutputs};
};

template <class Product, Element kElement>
static void offer_linear(Kernels& kernels) {
  kernels.linear[(int)kElement] = [](int64_t rows) -> const LinearForm& {
    return streams_beside_lanes(rows) ? StreamedLinear<Product, kElement>::form
                                      : TiledLinear<Product, kElement>::form;
  };
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
