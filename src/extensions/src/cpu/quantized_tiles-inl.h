// The forms of few rows times quantized weights on AMX: which rows are digits, in vectors or on tiles, and
// which are terms.
#pragma once

#include <type_traits>

#include "cpu/quantized_one-inl.h"
#include "cpu/quantized_tile_product-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <class Numbers, class Sums, Element kElement, class Layout>
static void multiply_lanes(const FewTask& task, const Layout& layout, const void* packed) {
  const auto access = LaneAccess<typename Sums::Factors>::template of<Numbers, kElement>();
  TileProduct<Numbers, Sums, Layout>(task, access, layout, (const float*)packed).run();
}

template <int kBits, Element kElement>
struct LanesOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return layout(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) {
    const TinyNumbersCount mode;
    with_numbers(task, [&](auto numbers) {
      pack_lanes<decltype(numbers), kElement>(task, layout(task), (float*)packed);
    });
  }
  static void run(const FewTask& task, const void* packed) {
    const TinyNumbersCount mode;
    with_numbers(task, [&](auto numbers) {
      typedef decltype(numbers) Numbers;
      const LaneRows rows = layout(task);
      if (rows.lanes < kLanes) return multiply_lanes<Numbers, NarrowSums, kElement>(task, rows, packed);
      if (rows.tiles == 1) return multiply_lanes<Numbers, WideSums<1>, kElement>(task, rows, packed);
      multiply_lanes<Numbers, WideSums<2>, kElement>(task, rows, packed);
    });
  }

 private:
  static LaneRows layout(const QuantizedTask& task) { return LaneRows(task, kTerms<kElement>); }

  template <int kSteps>
  using Numbers = std::conditional_t<kElement == Element::bf16, NumbersOfTiles<kBits, kSteps>,
                                     CentredNumbers<kBits, kSteps>>;

  template <class Call>
  static void with_numbers(const QuantizedTask& task, Call call) {
    if (task.group == 32) return call(Numbers<1>());
    if (task.group == 64) return call(Numbers<2>());
    call(Numbers<4>());
  }
};

template <int kBits, Element kElement>
struct DigitsOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return DigitLanes(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) {
    const TinyNumbersCount mode;
    with_numbers(task, [&](auto numbers) {
      pack_digit_lanes<decltype(numbers), kElement>(task, DigitLanes(task), (float*)packed);
    });
  }
  static void run(const FewTask& task, const void* packed) {
    const TinyNumbersCount mode;
    with_numbers(task, [&](auto numbers) {
      typedef decltype(numbers) Numbers;
      const DigitLanes rows(task);
      if (rows.tiles == 1) return multiply_lanes<Numbers, DigitSums<1>, kElement>(task, rows, packed);
      multiply_lanes<Numbers, DigitSums<2>, kElement>(task, rows, packed);
    });
  }

 private:
  template <class Call>
  static void with_numbers(const QuantizedTask& task, Call call) {
    if (task.group == 32) return call(WholeNumbers<kBits, 32>());
    if (task.group == 64) return call(WholeNumbers<kBits, 64>());
    call(WholeNumbers<kBits, 128>());
  }
};

// Few rows: one or two as digits in vectors, then as digits on tiles (of bfloat16, which is a single term, as
// long as a tile has lanes for all of them), others as terms.
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
      constexpr int64_t kMost = kElement == Element::bf16 ? DigitLanes::kTogether : DigitLanes::kRows;
      if (task.rows <= kMost) return call(DigitsOnTiles<kBits, kElement>());
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
