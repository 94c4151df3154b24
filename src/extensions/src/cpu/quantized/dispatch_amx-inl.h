// The forms of few rows times quantized weights on AMX: which rows are digits, in vectors or on tiles, and
// which are terms.
#pragma once

#include "cpu/quantized/gemv-inl.h"
#include "cpu/quantized/skinny_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <class Numbers, class Sums, Element kElement, class Layout>
static void multiply_lanes(const FewTask& task, const Layout& layout, const void* packed) {
  const auto access = LaneAccess<typename Sums::Factors>::template of<Numbers, kElement>();
  TileProduct<Numbers, Sums, Layout>(task, access, layout, (const float*)packed).run();
}

template <int kNumber>
struct Constant {
  constexpr int operator()() const { return kNumber; }
};

// call(group), with its numbers as a constant, where denormals count.
template <class Call>
static void with_group(const QuantizedTask& task, Call call) {
  with_denormals([&] {
    if (task.group == 32) return call(Constant<32>());
    if (task.group == 64) return call(Constant<64>());
    call(Constant<128>());
  });
}

// How the numbers of a group are bfloat16 beside terms of elements of x of that type.
template <Element, int kBits, int kGroup>
struct NumbersBeside {
  typedef CentredNumbers<kBits, kGroup / kStep> type;
};
template <int kBits, int kGroup>
struct NumbersBeside<Element::bf16, kBits, kGroup> {
  typedef NumbersOfTiles<kBits, kGroup / kStep> type;
};

template <int kBits, Element kElement>
struct LanesOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return layout(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) {
    with_group(task, [&](auto group) {
      pack_lanes<Numbers<group()>, kElement>(task, layout(task), (float*)packed);
    });
  }
  static void run(const FewTask& task, const void* packed) {
    with_group(task, [&](auto group) {
      typedef Numbers<group()> OfGroup;
      const LaneRows rows = layout(task);
      if (rows.lanes == NarrowSums::kWidth)
        return multiply_lanes<OfGroup, NarrowSums, kElement>(task, rows, packed);
      if (rows.tiles == 1) return multiply_lanes<OfGroup, WideSums<1>, kElement>(task, rows, packed);
      multiply_lanes<OfGroup, WideSums<2>, kElement>(task, rows, packed);
    });
  }

 private:
  static LaneRows layout(const QuantizedTask& task) { return LaneRows(task, kTerms<kElement>); }

  template <int kGroup>
  using Numbers = typename NumbersBeside<kElement, kBits, kGroup>::type;
};

// Of bfloat16, a single term for each number, digits are fewer tiles only where all of them are one.
template <int kBits, Element kElement>
struct DigitsOnTiles {
  static constexpr int64_t kRows = kElement == Element::bf16 ? DigitLanes::kOneTileRows : DigitLanes::kRows;

  static size_t packed_bytes(const QuantizedTask& task) { return DigitLanes(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) {
    with_group(task, [&](auto group) {
      pack_digit_lanes<WholeNumbers<kBits, group()>, kElement>(task, DigitLanes(task), (float*)packed);
    });
  }
  static void run(const FewTask& task, const void* packed) {
    with_group(task, [&](auto group) {
      typedef WholeNumbers<kBits, group()> Numbers;
      const DigitLanes rows(task);
      if constexpr (kRows > DigitLanes::kOneTileRows)
        if (rows.tiles == 2) return multiply_lanes<Numbers, DigitSums<2>, kElement>(task, rows, packed);
      multiply_lanes<Numbers, DigitSums<1>, kElement>(task, rows, packed);
    });
  }
};

// Few rows: one or two as digits in vectors, then as digits on tiles, others as terms.
struct OnTiles {
  static constexpr int kRows = kMostRowTiles * kLanes;
  template <int kBits, Element kElement>
  using One = OneInVectors<DigitUnits<kBits>, kElement>;
  template <int kBits, Element kElement>
  struct Few {
    static size_t packed_bytes(const QuantizedTask& task) {
      return in_form(task, [&](auto form) { return form.packed_bytes(task); });
    }
    static void pack(const QuantizedTask& task, void* packed) {
      in_form(task, [&](auto form) { form.pack(task, packed); });
    }
    static void run(const FewTask& task, const void* packed) {
      in_form(task, [&](auto form) { form.run(task, packed); });
    }

   private:
    template <class Call>
    static auto in_form(const QuantizedTask& task, Call call) {
      typedef DigitsOnTiles<kBits, kElement> Digits;
      if (task.rows <= Digits::kRows) return call(Digits());
      return call(LanesOnTiles<kBits, kElement>());
    }
  };
};

// Pieces of many rows: as terms, however many rows the last piece has.
struct PiecesOnTiles {
  static constexpr int kRows = OnTiles::kRows;
  template <int kBits, Element kElement>
  using One = LanesOnTiles<kBits, kElement>;
  template <int kBits, Element kElement>
  using Few = LanesOnTiles<kBits, kElement>;
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
