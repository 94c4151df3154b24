// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32.
//
// Up to kStreamedRows rows take the form that is as fast as memory, more the one that is as fast as the
// multiply units; they round differently, so a row's bits depend on which of the two it is, but on nothing
// else.
#pragma once

#include "cpu/product-inl.h"
#include "cpu/quantized_stream-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <template <int> class Stream, class Product, Element kElement>
struct Quantized {
  static size_t packed_bytes(const QuantizedTask& task) {
    if (!task.streamed)
      return (task.rows + kTileLanes - 1) / kTileLanes * packed_floats<Product>(task) * sizeof(float);
    return (task.bits == 4 ? StreamedX<Stream<4>>(task).floats() : StreamedX<Stream<8>>(task).floats()) *
           sizeof(float);
  }

  static void pack(const QuantizedTask& task, void* packed) {
    if (!task.streamed)
      pack_product<Product, kElement>(task, (float*)packed);
    else if (task.bits == 4)
      pack_streamed<Stream<4>, kElement>(task, (float*)packed);
    else
      pack_streamed<Stream<8>, kElement>(task, (float*)packed);
  }

  static size_t scratch_bytes(const QuantizedTask& task) {
    size_t floats = !task.streamed   ? product_floats<Product>()
                    : task.bits == 4 ? streamed_floats(task, StreamedX<Stream<4>>(task))
                                     : streamed_floats(task, StreamedX<Stream<8>>(task));
    return floats * sizeof(float);
  }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.bits == 4)
      run_bits<4>(task, (const float*)packed, (float*)scratch);
    else
      run_bits<8>(task, (const float*)packed, (float*)scratch);
  }

 private:
  template <int kBits>
  static void run_bits(const QuantizedTask& task, const float* packed, float* scratch) {
    if (task.streamed)
      stream<Stream<kBits>, kElement>(task, packed, scratch);
    else
      product<Product, kElement, kBits>(task, packed, scratch);
  }
};

template <template <int> class Stream, class Product, Element kElement>
static void offer_quantized(Kernels& kernels) {
  typedef Quantized<Stream, Product, kElement> Q;
  kernels.quantized[(int)kElement] = {Q::packed_bytes, Q::pack,    Q::scratch_bytes, Q::run,
                                      kStreamedRows,   kTileLanes, kProductTiles,    kProductOutputs};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
