// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32.
//
// One or two rows and few rows take forms that are as fast as memory, more the one that is as fast as the
// multiply units. They round differently, so a row's bits depend on which of the three it is, but on nothing
// else.
#pragma once

#include "cpu/quantized_few-inl.h"
#include "cpu/quantized_many-inl.h"
#include "cpu/quantized_one-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <template <int> class Units, class Product, Element kElement>
struct Quantized {
  static size_t packed_bytes(const QuantizedTask& task) {
    if (!task.few) return Product::template packed_bytes<kElement>(task);
    return sizeof(float) * (task.bits == 4 ? few_floats<Units<4>>(task) : few_floats<Units<8>>(task));
  }

  static void pack(const QuantizedTask& task, void* packed) {
    if (!task.few)
      Product::template pack<kElement>(task, packed);
    else if (task.bits == 4)
      pack_bits<4>(task, (float*)packed);
    else
      pack_bits<8>(task, (float*)packed);
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
  template <class TheUnits>
  static size_t few_floats(const QuantizedTask& task) {
    return task.rows <= kOneRows ? OneRows<TheUnits>(task).floats() : FewRows<TheUnits>(task).floats();
  }

  template <int kBits>
  static void pack_bits(const QuantizedTask& task, float* packed) {
    if (task.rows <= kOneRows)
      pack_one<Units<kBits>, kElement>(task, packed);
    else
      pack_few<Units<kBits>, kElement>(task, packed);
  }

  template <int kBits>
  static void run_bits(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.few && task.rows <= kOneRows) return run_one<Units<kBits>, kElement>(task, (const float*)packed);
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
