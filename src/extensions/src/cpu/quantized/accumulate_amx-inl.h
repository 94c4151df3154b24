// Accumulators of skinny products on AMX: the tile sums of a quantization group, times its scales, are added
// to kLanes outputs, which stay in registers.
//
// An accumulator has kTiles tiles of x, kWidth lanes each, and for each group kGroupFloats floats of x, its
// sums first. `Scales` holds the scales and biases of kScaleGroups groups. `add_group` adds a group,
// `transpose_to_rows` gives the result, kLanes outputs a row.
#pragma once

#include "cpu/quantized/pack_int8_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kScaleGroups = kLanes;

// 0 in the low half of the lanes, 8 in the high half.
VEC_FN __m512i high_half_times_8() {
  return _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8);
}

// Scales and biases, [output][group].
class ScaleRows {
  static constexpr int kMiddle = kLanes / 2;
  alignas(64) float scale_[kLanes][kScaleGroups], bias_[kLanes][kScaleGroups];

 public:
  // Stores the scales and biases of outputs `output` and `output` + 1; `output` is even.
  inline __attribute__((always_inline)) void put(int output, const F* scales, const F* biases) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      store(scale_[output + i], scales[i]);
      store(bias_[output + i], biases[i]);
    }
  }

  // Scales and biases of one group. Pointers to the middle output: from there every offset fits one byte.
  class Column {
    const float *scale_, *bias_;

   public:
    VEC_FN Column of(const ScaleRows& scales, int group) {
      Column column;
      column.scale_ = &scales.scale_[kMiddle][group];
      column.bias_ = &scales.bias_[kMiddle][group];
      __asm__("" : "+r"(column.scale_), "+r"(column.bias_));
      return column;
    }
    inline __attribute__((always_inline)) F scale(int i) const {
      return set1(scale_[(i - kMiddle) * kScaleGroups]);
    }
    inline __attribute__((always_inline)) F bias(int i) const {
      return set1(bias_[(i - kMiddle) * kScaleGroups]);
    }
  };
};

// bfloat16, one or two tiles of kLanes rows: a vector for each output and tile.
template <int kTiles_>
struct WideAccumulator {
  static constexpr int kTiles = kTiles_, kWidth = kLanes;
  static constexpr int kGroupFloats = kTiles * kLanes;
  typedef ScaleRows Scales;
  F y[kTiles][kLanes];

  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++)
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) y[tile][i] = zero();
  }

  // y += scale * (sum of the group's products) + bias * (sum of x over the group).
  inline __attribute__((always_inline)) void add_group(const float* sums, const float* x_sums,
                                                       const Scales& scales, int group) {
    const auto column = Scales::Column::of(scales, group);
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++, sums += kLanes * kLanes) {
      const F x_sum = load(x_sums + tile * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) {
        y[tile][i] = fma(x_sum, column.bias(i), y[tile][i]);
        y[tile][i] = fma(_mm512_load_ps(sums + i * kLanes), column.scale(i), y[tile][i]);
      }
    }
  }

  inline __attribute__((always_inline)) void transpose_to_rows(F* rows) const {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++, rows += kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) rows[i] = y[tile][i];
      transpose(rows);
    }
  }
};

// bfloat16, a tile of kLanes / 2 rows: a vector for two outputs.
struct NarrowAccumulator {
  static constexpr int kTiles = 1, kWidth = kLanes / 2, kPairs = kLanes / 2;
  static constexpr int kGroupFloats = kLanes;
  struct Scales {
    // [pair of outputs][half of the groups][output][group]
    alignas(64) float scale[kPairs][2][2][kScaleGroups / 2], bias[kPairs][2][2][kScaleGroups / 2];

    inline __attribute__((always_inline)) void put(int output, const F* scales, const F* biases) {
      put_halves(scale[output / 2], scales);
      put_halves(bias[output / 2], biases);
    }

   private:
    inline __attribute__((always_inline)) void put_halves(float (*to)[2][kScaleGroups / 2], const F* scales) {
      constexpr int kFirstHalves = 0x44, kSecondHalves = 0xee;
      store(to[0][0], _mm512_shuffle_f32x4(scales[0], scales[1], kFirstHalves));
      store(to[1][0], _mm512_shuffle_f32x4(scales[0], scales[1], kSecondHalves));
    }
  };
  F y[kPairs];

  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; i++) y[i] = zero();
  }

  inline __attribute__((always_inline)) void add_group(const float* sums, const float* x_sums,
                                                       const Scales& scales, int group) {
    constexpr int kHalf = kScaleGroups / 2;
    const __m512i index = _mm512_add_epi32(high_half_times_8(), _mm512_set1_epi32(group % kHalf));
    const int half = group / kHalf;
    const F x_sum = load(x_sums);
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; i++) {
      const F scale = _mm512_permutexvar_ps(index, _mm512_load_ps(scales.scale[i][half][0]));
      const F bias = _mm512_permutexvar_ps(index, _mm512_load_ps(scales.bias[i][half][0]));
      y[i] = fma(x_sum, bias, y[i]);
      y[i] = fma(_mm512_load_ps(sums + i * kLanes), scale, y[i]);
    }
  }

  // Transposes 16 outputs x 8 rows in three butterfly steps. Before: lane 8 o + r of vector i is output 2 i +
  // o of row r. Each step swaps one row bit of the lane with one output bit of the vector's index.
  inline __attribute__((always_inline)) void transpose_to_rows(F* rows) const {
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; i++) rows[i] = y[i];
    exchange<1>(rows, [](int lane, int bit) { return (lane & 14) + bit + lane % 2 * kLanes; });
    exchange<2>(rows, [](int lane, int bit) { return (lane & 13) + 2 * bit + lane / 2 % 2 * kLanes; });
    exchange<4>(rows,
                [](int lane, int bit) { return lane % 2 * 8 + 4 * bit + lane / 2 % 4 + lane / 8 * kLanes; });
  }

 private:
  // For each two vectors i and i + kBit: `lane` of the new vector i is lane from(lane, 0) of both, one after
  // the other, that of the new vector i + kBit lane from(lane, 1).
  template <int kBit, class From>
  static inline __attribute__((always_inline)) void exchange(F* rows, From from) {
    alignas(64) int32_t index[2][kLanes];
    for (int bit = 0; bit < 2; bit++)
      for (int lane = 0; lane < kLanes; lane++) index[bit][lane] = from(lane, bit);
    const __m512i without = _mm512_load_si512(index[0]), with = _mm512_load_si512(index[1]);
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; i++) {
      if (i & kBit) continue;
      const F first = rows[i], second = rows[i + kBit];
      rows[i] = _mm512_permutex2var_ps(first, without, second);
      rows[i + kBit] = _mm512_permutex2var_ps(first, with, second);
    }
  }
};

// int8 digits: the lanes of Int8Packing; the two tiles are added as integers.
template <int kTiles_>
struct Int8Accumulator {
  static constexpr int kTiles = kTiles_, kWidth = kLanes;
  static constexpr int kGroupFloats = 2 * kLanes;  // the second half: scales of digits
  typedef ScaleRows Scales;
  F y[kLanes];

  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) y[i] = zero();
  }

  inline __attribute__((always_inline)) void add_group(const float* sums, const float* x_sums,
                                                       const Scales& scales, int group) {
    const auto column = Scales::Column::of(scales, group);
    const __m512i shift_of_middle = high_half_times_8();
    const F x_sum = load(x_sums), x_scale = load(x_sums + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
      __m512i sum = _mm512_load_si512(sums + i * kLanes);
      if constexpr (kTiles == 2)
        sum = _mm512_add_epi32(_mm512_sllv_epi32(sum, shift_of_middle),
                               _mm512_load_si512(sums + (kLanes + i) * kLanes));
      y[i] = fma(x_sum, column.bias(i), y[i]);
      y[i] = fma(mul(_mm512_cvtepi32_ps(sum), x_scale), column.scale(i), y[i]);
    }
  }

  inline __attribute__((always_inline)) void transpose_to_rows(F* rows) const {
    F lanes[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) lanes[i] = y[i];
    transpose(lanes);
    if constexpr (kTiles == 1) {
      for (int m = 0; m < Int8Packing<1>::kMaxRows; m++) {
        const F* digits = lanes + m * kDigits;
        rows[m] = add(digits[0], add(digits[1], digits[2]));
      }
    } else {
      for (int m = 0; m < Int8Packing<2>::kMaxRows; m++)
        rows[m] = add(lanes[m], lanes[Int8Packing<2>::kMaxRows + m]);
    }
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
