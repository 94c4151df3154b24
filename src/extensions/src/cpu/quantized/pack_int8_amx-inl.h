// Packs rows of x as the B operand of int8 AMX products: each int8 digit of a row is a lane
// (int8_digits-inl.h).
#pragma once

#include <math.h>
#include <string.h>

#include "cpu/quantized/int8_digits-inl.h"
#include "cpu/quantized/pack_bf16_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Packed x: [step][tile][four elements][lane], then float32 [group][2][lane]: the sums over the quantization
// group, in the lanes of high digits, and the scales of the digits; then one scale and one exponent for each
// row.
//
//               lanes 0-7           lanes 8-15
//   one tile:   lane 3 m + d is digit d of row m (0 high, 1 middle, 2 low), up to 5 rows
//   tile 0      high digits         middle digits
//   tile 1      unused              low digits
// Sums of middle digits are multiplied by 256, so that those of low digits have the same scale.
template <int kTiles_>
struct Int8Packing {
  static constexpr int64_t kTiles = kTiles_, kMaxRows = kTiles == 1 ? kLanes / kDigits : kLanes / 2;
  int64_t rows, groups, K;

  explicit Int8Packing(const QuantizedTask& task)
      : rows(task.rows), groups(task.num_groups), K(task.num_groups * task.group_size) {}

  struct TileLane {
    int64_t tile, lane;
  };
  TileLane lane_of(int64_t m, int digit) const {
    if (kTiles == 1) return {0, m * kDigits + digit};
    return digit == 0 ? TileLane{0, m} : TileLane{digit - 1, kMaxRows + m};
  }

  int64_t sums() const { return K / 4 * kTiles * kLanes; }
  int64_t row_scales() const { return sums() + groups * 2 * kLanes; }
  int64_t row_exponents() const { return row_scales() + rows; }
  size_t floats() const { return row_exponents() + rows; }
};

// The digits of a row in one quantization group.
template <class Codec>
struct GroupDigits {
  static constexpr int kStepQuants = Codec::kStepQuants, kGroup = Codec::kSteps * kStepQuants;
  // The sums of middle and low digits together fit 32 bits.
  static_assert(kGroup * 128LL * 128 * 257 < 1LL << 31);
  alignas(64) uint8_t digits[kDigits][Codec::kSteps][64] = {};
  float sum, scale;

  // Of x / 2^exponent.
  template <Element kElement>
  VEC_FN GroupDigits of(const StorageOf<kElement>* x, float exponent) {
    GroupDigits group;
    alignas(64) float x_f32[kGroup];
    F sums = zero();
    for (int e = 0; e < kGroup; e += kLanes) {
      const F part = _mm512_scalef_ps(load_as<kElement>(x + e), set1(-exponent));
      store(x_f32 + e, part);
      sums = add(sums, part);
    }
    group.sum = _mm512_reduce_add_ps(sums);
    group.scale = write_digits<false>(x_f32, kGroup, [&](int first, int digit, __m128i of_elements) {
      _mm_store_si128((__m128i*)(group.digits[digit][first / kStepQuants] + first % kStepQuants),
                      of_elements);
    });
    return group;
  }

  // The digits of a step in the order of the codec.
  inline __attribute__((always_inline)) F lane(int digit, int step) const {
    alignas(64) uint8_t from[64];
    for (int i = 0; i < 64; i++) from[i] = (uint8_t)Codec::source_quant(i % kStepQuants);
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi8(_mm512_load_si512(from), _mm512_load_si512(digits[digit][step])));
  }
};

// The scale of row m and its exponent.
template <Element kElement, int kTiles>
static void prepare_int8_row(const TaskWithOutliers& task, const Int8Packing<kTiles>& layout, float* packed,
                             int64_t m) {
  const int exponent = row_exponent<kElement>(task.row_to_pack<kElement>(m), layout.K);
  packed[layout.row_scales() + m] = ldexpf(1, exponent);
  packed[layout.row_exponents() + m] = (float)exponent;
}

// Packs the quantization groups from `begin` to `end` of all rows.
template <class Codec, Element kElement, int kTiles>
static void pack_int8_lanes(const TaskWithOutliers& task, const Int8Packing<kTiles>& layout, float* packed,
                            int64_t begin, int64_t end) {
  const float* const exponents = packed + layout.row_exponents();
  float* sums = packed + layout.sums() + begin * 2 * kLanes;
  memset(sums, 0, (end - begin) * 2 * kLanes * sizeof(float));
  packed += begin * task.group_size / 4 * kTiles * kLanes;
  F lanes[Codec::kSteps][kTiles][kLanes];
  for (auto& step : lanes)
    for (auto& tile : step)
      for (F& lane : tile) lane = zero();
  for (int64_t group = begin; group < end; group++, sums += 2 * kLanes) {
    float* const x_scales = sums + kLanes;
    for (int64_t m = 0; m < task.rows; m++) {
      auto* x = task.row_to_pack<kElement>(m) + group * task.group_size;
      const auto group_digits = GroupDigits<Codec>::template of<kElement>(x, exponents[m]);
      for (int digit = 0; digit < kDigits; digit++) {
        const auto [tile, lane] = layout.lane_of(m, digit);
        for (int step = 0; step < Codec::kSteps; step++)
          lanes[step][tile][lane] = group_digits.lane(digit, step);
      }
      sums[layout.lane_of(m, 0).lane] = group_digits.sum;
      x_scales[layout.lane_of(m, 0).lane] = group_digits.scale * 0x1p16f;
      if (kTiles == 1) x_scales[layout.lane_of(m, 1).lane] = group_digits.scale * 0x1p8f;
      x_scales[layout.lane_of(m, 2).lane] = group_digits.scale;
    }
    for (const auto& step : lanes)
      for (int64_t tile = 0; tile < kTiles; tile++) {
        F rows[kLanes];
        for (int lane = 0; lane < kLanes; lane++) rows[lane] = step[tile][lane];
        transpose(rows);
        for (int i = 0; i < Codec::kStepQuants / 4; i++, packed += kLanes) store(packed, rows[i]);
      }
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
