// Products with dense weights: y (M, N) = x (M, K) w^T + bias, sums in float32.
//
// Rows stream where that is faster, in the form that is as fast as memory; others take the one that is as
// fast as the multiply units. They round differently, so a row's bits depend on which of the two it is, but
// on nothing else.
#pragma once

#include "cpu/dense_stream-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <class Product, Element kElement, class Few>
struct Linear {
  static size_t packed_bytes(const LinearTask& task) {
    const ProductTask all = product_of(task);
    return (task.streamed ? streamed_x_floats<Few>(task) : all.tiles() * packed_floats<Product>(all.K)) *
           sizeof(float);
  }

  static void pack(const LinearTask& task, void* packed) {
    if (task.streamed)
      pack_streamed<Few, kElement>(task, (float*)packed);
    else
      pack_product<Product, kElement>(product_of(task), (float*)packed);
  }

  static size_t scratch_bytes(const LinearTask& task) {
    return task.streamed ? streamed_sums_floats(task) * sizeof(float)
                         : product_bytes<Product>(product_of(task));
  }

  static void run(const LinearTask& task, const void* packed, void* scratch) {
    if (task.streamed)
      stream_dense<Few, kElement>(task, (const float*)packed, (float*)scratch);
    else
      product<Product, kElement>(product_of(task), DenseWeights<kElement>{task}, (const float*)packed,
                                 (float*)scratch);
  }
};

// `Few` is the product of rows that stream.
template <class Product, Element kElement, class Few = Product>
static void offer_linear(Kernels& kernels, bool (*streamed)(int64_t rows) = streams_beside_lanes) {
  typedef Linear<Product, kElement, Few> L;
  kernels.linear[(int)kElement] = {L::packed_bytes, L::pack,    L::scratch_bytes, L::run,
                                   streamed,        kTileLanes, kProductTiles,    Product::kTaskOutputs};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
