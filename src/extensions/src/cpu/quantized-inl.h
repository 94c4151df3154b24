// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32.
//
// Few rows take a form that is as fast as memory, more the one that is as fast as the multiply units. They
// round differently, so a row's bits depend on which of them it is, but on nothing else.
#pragma once

#include "cpu/outliers-inl.h"
#include "cpu/quantized_few-inl.h"
#include "cpu/quantized_one-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Few rows in vectors: one or two along the words, more across outputs.
template <template <int> class Units>
struct InVectors {
  static constexpr int kRows = kFewRows;
  template <int kBits, Element kElement>
  using One = OneInVectors<Units<kBits>, kElement>;
  template <int kBits, Element kElement>
  using Few = FewInVectors<Units<kBits>, kElement>;
};

template <class Forms, class Many, Element kElement>
struct Quantized {
  static size_t packed_bytes(const QuantizedTask& task) {
    if (!task.few) return Many::template packed_bytes<kElement>(task);
    return form_bytes(task) + OutlierLayout<kElement>(task).bytes();
  }

  static void pack(const QuantizedTask& task, void* packed) {
    if (!task.few) return Many::template pack<kElement>(task, packed);
    const QuantizedTask others = set_outliers_aside<kElement>(task, outliers(task, packed));
    in_form(task, [&](auto form) { form.pack(others, packed); });
  }

  static size_t scratch_bytes(const QuantizedTask& task) { return task.few ? 0 : Many::scratch_bytes(task); }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.few) return run_few(task, packed);
    if (task.bits == 4)
      Many::template run<kElement, 4>(task, packed, scratch);
    else
      Many::template run<kElement, 8>(task, packed, scratch);
  }

 private:
  // Packed few rows: what the form has made of them, and behind it their outliers.
  static size_t form_bytes(const QuantizedTask& task) {
    const size_t bytes = in_form(task, [&](auto form) { return form.packed_bytes(task); });
    return (bytes + 63) / 64 * 64;
  }
  static void* outliers(const QuantizedTask& task, const void* packed) {
    return (char*)packed + form_bytes(task);
  }

  static void run_few(const QuantizedTask& task, const void* packed) {
    const OutlierLayout<kElement> layout(task);
    void* const memory = outliers(task, packed);
    const FewTask few = {task, layout.ends(memory), layout.places(memory)};
    in_form(task, [&](auto form) { form.run(few, packed); });
  }

  template <class Call>
  static auto in_form(const QuantizedTask& task, Call call) {
    if (task.bits == 4) return in_form_of_bits<4>(task, call);
    return in_form_of_bits<8>(task, call);
  }
  template <int kBits, class Call>
  static auto in_form_of_bits(const QuantizedTask& task, Call call) {
    if (task.rows <= kOneRows) return call(typename Forms::template One<kBits, kElement>());
    return call(typename Forms::template Few<kBits, kElement>());
  }
};

template <class Forms, class Many, Element kElement>
static void offer_quantized(Kernels& kernels) {
  typedef Quantized<Forms, Many, kElement> Q;
  kernels.quantized[(int)kElement] = {Q::packed_bytes, Q::pack,         Q::scratch_bytes, Q::run,
                                      Forms::kRows,    Many::kPackRows, Many::kTaskRows,  Many::kTaskOutputs};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
