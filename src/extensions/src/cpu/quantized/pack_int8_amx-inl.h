// Few rows as the B operand of AMX products of bytes: rows as whole numbers, whose digits are lanes.
#pragma once

#include <math.h>
#include <string.h>

#include "cpu/quantized/codec_int8-inl.h"
#include "cpu/quantized/pack_bf16_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// x of a call: [step][tile][four numbers][lane], and behind it in float32, [group], a vector of the sums over
// it, at the lanes of high digits, and one of what digits are worth; then what is one in a row, [row]. Up to
// kOneTileRows rows have all their digits in one tile, those of a row beside each other. Of more rows the
// first half of the lanes are the high digits and the second half the middle ones; the low ones are the
// second half of another tile, and worth as much once the middle ones are multiplied by 256.
struct DigitLanes {
  static constexpr int64_t kOneTileRows = kLanes / kDigits, kRows = kLanes / 2;
  int64_t rows, groups, numbers, tiles;

  explicit DigitLanes(const QuantizedTask& task)
      : rows(task.rows),
        groups(task.groups),
        numbers(task.groups * task.group),
        tiles(rows <= kOneTileRows ? 1 : 2) {}

  struct Place {
    int64_t tile, lane;
  };
  Place place(int64_t m, int digit) const {
    if (tiles == 1) return {0, m * kDigits + digit};
    return digit == 0 ? Place{0, m} : Place{digit - 1, kRows + m};
  }

  int64_t sums() const { return numbers / 4 * tiles * kLanes; }
  int64_t units() const { return sums() + groups * 2 * kLanes; }
  size_t floats() const { return units() + rows; }
};

// One group of a row.
template <class Numbers>
struct GroupDigits {
  static constexpr int kNumbers = Numbers::kStepNumbers, kGroup = Numbers::kSteps * kNumbers;
  // Sums of middle and low digits together are integers of 32 bits.
  static_assert(kGroup * 128LL * 128 * 257 < 1LL << 31);
  alignas(64) uint8_t digits[kDigits][Numbers::kSteps][64] = {};
  float sum, unit;

  // x counts in units of 2^exponent.
  template <Element kElement>
  VEC_FN GroupDigits of(const StorageOf<kElement>* x, float exponent) {
    GroupDigits group;
    alignas(64) float wide[kGroup];
    F sums = zero();
    for (int e = 0; e < kGroup; e += kLanes) {
      const F part = _mm512_scalef_ps(load_as<kElement>(x + e), set1(-exponent));
      store(wide + e, part);
      sums = add(sums, part);
    }
    group.sum = _mm512_reduce_add_ps(sums);
    group.unit = write_digits<false>(wide, kGroup, [&](int first, int digit, __m128i of_numbers) {
      _mm_store_si128((__m128i*)(group.digits[digit][first / kNumbers] + first % kNumbers), of_numbers);
    });
    return group;
  }

  // Those of a step in the order of the weights' numbers.
  inline __attribute__((always_inline)) F lane(int digit, int step) const {
    alignas(64) uint8_t from[64];
    for (int i = 0; i < 64; i++) from[i] = (uint8_t)Numbers::number(i % kNumbers);
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi8(_mm512_load_si512(from), _mm512_load_si512(digits[digit][step])));
  }
};

template <class Numbers, Element kElement>
static void pack_digit_lanes(const QuantizedTask& task, const DigitLanes& layout, float* packed) {
  float exponents[DigitLanes::kRows], *sums = packed + layout.sums(), *units = packed + layout.units();
  memset(sums, 0, layout.groups * 2 * kLanes * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    const int exponent = row_exponent<kElement>(x, layout.numbers);
    exponents[m] = (float)exponent;
    units[m] = ldexpf(1, exponent);
  }
  F lanes[Numbers::kSteps][2][kLanes];
  for (auto& step : lanes)
    for (auto& tile : step)
      for (F& lane : tile) lane = zero();
  for (int64_t group = 0; group < layout.groups; group++, sums += 2 * kLanes) {
    float* const worth = sums + kLanes;
    for (int64_t m = 0; m < task.rows; m++) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + group * task.group;
      const auto of = GroupDigits<Numbers>::template of<kElement>(x, exponents[m]);
      for (int digit = 0; digit < kDigits; digit++) {
        const auto [tile, lane] = layout.place(m, digit);
        for (int step = 0; step < Numbers::kSteps; step++) lanes[step][tile][lane] = of.lane(digit, step);
      }
      sums[layout.place(m, 0).lane] = of.sum;
      worth[layout.place(m, 0).lane] = of.unit * 0x1p16f;
      if (layout.tiles == 1) worth[layout.place(m, 1).lane] = of.unit * 0x1p8f;
      worth[layout.place(m, 2).lane] = of.unit;
    }
    for (const auto& step : lanes)
      for (int64_t tile = 0; tile < layout.tiles; tile++) {
        F turned[kLanes];
        for (int lane = 0; lane < kLanes; lane++) turned[lane] = step[tile][lane];
        transpose(turned);
        for (int i = 0; i < Numbers::kStepNumbers / 4; i++, packed += kLanes) store(packed, turned[i]);
      }
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
