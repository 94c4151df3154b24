// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32.
//
// Few rows take a form that is as fast as memory, more the one that is as fast as the multiply units; where
// one is both, many rows are few at a time. Forms round differently, so a row's bits depend on which of them
// it is, but on nothing else.
#pragma once

#include "cpu/quantized/gemv-inl.h"
#include "cpu/quantized/outliers-inl.h"
#include "cpu/quantized/skinny-inl.h"

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

// Few rows, in the form for so many. Packed: what the form has made of them, and behind it their outliers.
template <class Forms, Element kElement>
struct FewQuantized {
  static size_t packed_bytes(const QuantizedTask& task) {
    return form_bytes(task) + OutlierLayout<kElement>(task).bytes();
  }

  static void pack(const QuantizedTask& task, void* packed) {
    const QuantizedTask others = set_outliers_aside<kElement>(task, outliers(task, packed));
    in_form(task, [&](auto form) { form.pack(others, packed); });
  }

  static void run(const QuantizedTask& task, const void* packed) {
    const OutlierLayout<kElement> layout(task);
    void* const memory = outliers(task, packed);
    const FewTask few = {task, layout.ends(memory), layout.places(memory)};
    in_form(task, [&](auto form) { form.run(few, packed); });
  }

 private:
  static size_t form_bytes(const QuantizedTask& task) {
    const size_t bytes = in_form(task, [&](auto form) { return form.packed_bytes(task); });
    return (bytes + 63) / 64 * 64;
  }
  static void* outliers(const QuantizedTask& task, const void* packed) {
    return (char*)packed + form_bytes(task);
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

// Many rows as few at a time, a piece each, where that is faster than what else there is for many.
template <class Forms>
struct FewAtATime {
  static constexpr int kPackRows = Forms::kRows, kTaskRows = kPackRows;
  static constexpr int kTaskOutputs = 512;

  template <Element kElement>
  static size_t packed_bytes(const QuantizedTask& task) {
    return FewQuantized<Forms, kElement>::packed_bytes(task);
  }
  template <Element kElement>
  static void pack(const QuantizedTask& task, void* packed) {
    FewQuantized<Forms, kElement>::pack(task, packed);
  }

  template <Element>
  static size_t scratch_bytes(const QuantizedTask&) {
    return 0;
  }

  template <Element kElement, int>
  static void run(const QuantizedTask& task, const void* packed, void*) {
    FewQuantized<Forms, kElement>::run(task, packed);
  }
};

template <class Forms, class Many, Element kElement>
struct Quantized {
  typedef FewQuantized<Forms, kElement> Few;

  static size_t packed_bytes(const QuantizedTask& task) {
    return task.few ? Few::packed_bytes(task) : Many::template packed_bytes<kElement>(task);
  }

  static void pack(const QuantizedTask& task, void* packed) {
    if (task.few) return Few::pack(task, packed);
    Many::template pack<kElement>(task, packed);
  }

  static size_t scratch_bytes(const QuantizedTask& task) {
    return task.few ? 0 : Many::template scratch_bytes<kElement>(task);
  }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    if (task.few) return Few::run(task, packed);
    if (task.bits == 4)
      Many::template run<kElement, 4>(task, packed, scratch);
    else
      Many::template run<kElement, 8>(task, packed, scratch);
  }
};

template <class Forms, class Many, Element kElement>
static void offer_quantized(Kernels& kernels) {
  typedef Quantized<Forms, Many, kElement> Q;
  kernels.quantized[(int)kElement] = {Q::packed_bytes, Q::pack,         Q::scratch_bytes, Q::run,
                                      Forms::kRows,    Many::kPackRows, Many::kTaskRows,  Many::kTaskOutputs};
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
