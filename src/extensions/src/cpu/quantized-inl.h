// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32.
//
// Few rows take the form that is as fast as memory, more the one that is as fast as the multiply units; they
// round differently, so a row's bits depend on which of the two it is, but on nothing else.
#pragma once

#include "cpu/quantized_few-inl.h"
#include "cpu/quantized_many-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <template <int> class Units, class Product, Element kElement>
struct Quantized {
  static size_t packed_bytes(const QuantizedTask& task) {
    if (task.few)
      return (task.bits == 4 ? FewRows<Units<4>>(task).floats() : FewRows<Units<8>>(task).floats()) *
             sizeof(float);
    return Product::template packed_bytes<kElement>(task);
  }

  static void pack(const QuantizedTask& task, void* packed) {
    if (!task.few)
      Product::template pack<kElement>(task, packed);
    else if (task.bits == 4)
      pack_few<Units<4>, kElement>(task, (float*)packed);
    else
      pack_few<Units<8>, kElement>(task, (float*)packed);
  }

  static size_t scratch_bytes(const QuantizedTask& task) {
    return task.few ? 0 : many_floats<Product>() * sizeof(float);
  }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.bits == 4)
      run_bits<4>(task, packed, scratch);
    else
      run_bits<8>(task, packed, scratch);
  }

 private:
  template <int kBits>
  static void run_bits(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.few) return run_few<Units<kBits>, kElement>(task, (const float*)packed);
    const bool in_place = Product::template packed_bytes<kElement>(task) == 0;
    const int64_t stride = in_place ? task.x_row_stride : task.groups * task.group;
    const ManyX x = {(const float*)(in_place ? task.x : packed), stride / Product::kPerStep};
    run_many<Product, kElement, kBits>(task, x, (float*)scratch);
  }
};

template <template <int> class Units, class Product, Element kElement>
static void offer_quantized(Kernels& kernels) {
  typedef Quantized<Units, Product, kElement> Q;
  kernels.quantized[(int)kElement] = {Q::packed_bytes, Q::pack,   Q::scratch_bytes, Q::run,
                                      kFewRows,        kManyRows, kManyOutputs};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
