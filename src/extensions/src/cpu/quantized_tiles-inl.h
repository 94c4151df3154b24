// Few rows of bfloat16 times quantized weights on AMX tiles. Weights are read as numbers that bfloat16 holds
// exactly; scales and biases, in float32, come to what a group of them adds up to.
//
// Rows of weights are the A operand, as they lie in memory, and a row of x is a lane of the B operand. A unit
// of the work is one group of K of kLanes outputs, and its three parts (weights to bfloat16, products, sums
// times scales) run some units apart, so that what is read has been written well before (benches/LOG.md).
// Every lane adds up by itself, so the bits of a row do not depend on other rows.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_digits-inl.h"
#include "cpu/quantized_lanes-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMostRowTiles = 2;
constexpr int kMostDigitRows = 6;      // more rows of bfloat16 are slower as digits (benches/LOG.md)
constexpr int kFactorGroups = kLanes;  // whose scales are widened at a time

// Tiles 0 and 1 hold sums of a unit, and 2 and 3 those of the next; 4 holds weights, 6 and 7 hold x,
// and 5 is not used.
struct LaneTileConfig : TileConfig {
  explicit LaneTileConfig(int64_t lanes) {
    for (int tile = 0; tile < 8; tile++)
      if (tile != 4) row_bytes[tile] = (uint16_t)(lanes * sizeof(float));
  }
};

// All rows of a task, kTiles tiles of them, times its weights.
template <class Numbers, int kTiles>
class TileProduct {
  static constexpr int kSteps = Numbers::kSteps;  // of a group
  static constexpr int64_t kStepBytes = kStep * Numbers::kBits / 8, kGroupBytes = kSteps * kStepBytes;
  // Units from writing weights to their products, and to adding up their sums. What is read sooner waits.
  static constexpr int64_t kToProducts = 3, kToSums = 6;
  static constexpr int64_t kKept = 4;  // units whose weights and sums are kept
  static_assert(kKept >= kToProducts && kToSums > kToProducts && kKept >= kToSums - kToProducts);
  static constexpr int64_t kSecondTile = kTiles == 2 ? kLanes * 64 : 0;  // as `store_set` takes it
  static constexpr int64_t kAhead = 2 * kLanes;  // how many rows ahead weights and factors are asked for

  // Where one of the three parts of the work is: a group of kLanes outputs from n on.
  struct Unit {
    int64_t n = 0, group = 0;

    void move_on(int64_t groups) {
      if (++group < groups) return;
      group = 0;
      n += kLanes;
    }
  };

  const FewTask& task_;
  const LaneRows layout_;
  const float* const x_;
  const float* const x_sums_ = x_ + layout_.sums();
  const int64_t row_bytes_ = layout_.lanes * sizeof(float);  // of a tile of x
  const int64_t units_ = (task_.outputs + kLanes - 1) / kLanes * layout_.groups;
  Unit written_, multiplied_, added_;
  const uint8_t* words_[kLanes];
  alignas(64) uint16_t weights_[kKept][kSteps][kLanes][kStep];
  alignas(64) float sums_[kKept][kTiles][kLanes][kLanes] = {};  // lanes that narrow tiles lack stay zero
  alignas(64) float scale_[kLanes][kFactorGroups], bias_[kLanes][kFactorGroups];

 public:
  TileProduct(const FewTask& task, const float* x) : task_(task), layout_(task), x_(x) {}

  void run() {
    F y[kTiles][kLanes];
    clear(y);
    if (layout_.groups == 0) return write_zeros(y);
    load_config(LaneTileConfig(layout_.lanes));
    for (int64_t unit = 0; unit < units_ + kToSums; unit += 2) {
      pass<0>(unit, y);
      pass<1>(unit + 1, y);
    }
    _tile_release();
  }

 private:
  typedef F (&Outputs)[kTiles][kLanes];

  // Outputs behind the last are the last again, whose results nobody keeps.
  int64_t row(int64_t n) const { return n < task_.outputs ? n : task_.outputs - 1; }

  VEC_FN void clear(Outputs y) {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++)
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) y[tile][i] = zero();
  }

  void write_zeros(Outputs y) {
    for (int64_t n = 0; n < task_.outputs; n += kLanes) write_outputs(n, y);
  }

  // The weights of `unit`, and the other two parts of units before it.
  template <int kSet>
  inline __attribute__((always_inline)) void pass(int64_t unit, Outputs y) {
    const int64_t product = unit - kToProducts, before = product - 1, sum = unit - kToSums;
    settle_stores();
    if (product >= 0 && product < units_) multiply<kSet>(weights_[product % kKept]);
    if (before >= 0 && before < units_) store_set<1 - kSet>((char*)sums_[before % kKept], kSecondTile, 64);
    settle_stores();
    if (unit < units_) write_weights(weights_[unit % kKept]);
    if (sum >= 0 && sum < units_) add_sums(sums_[sum % kKept], y);
  }

  // [step][output][number]
  inline __attribute__((always_inline)) void write_weights(uint16_t (*to)[kLanes][kStep]) {
    const int64_t group = written_.group;
    if (group == 0)
      for (int i = 0; i < kLanes; i++)
        words_[i] = (const uint8_t*)(task_.w + row(written_.n + i) * task_.w_row_stride);
    // Where rows lie behind each other a part of later ones, perhaps of another task or behind the end.
    prefetch(words_[0] + kAhead * task_.w_row_stride * 4 + group * kLanes * kGroupBytes,
             kLanes * kGroupBytes);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; step += Numbers::kTogether)
        Numbers::write(words_[i] + group * kGroupBytes + step * kStepBytes, to + step, i);
    }
    written_.move_on(layout_.groups);
  }

  template <int kSet>
  inline __attribute__((always_inline)) void multiply(const uint16_t (*weights)[kLanes][kStep]) {
    const float* x = x_ + multiplied_.group * kSteps * kTiles * layout_.tile_floats();
    zero_set<kSet>();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; step++) {
      _tile_loadd(4, weights[step], 64);
      _tile_loadd(6, x, row_bytes_);
      if constexpr (kTiles == 2) _tile_loadd(7, x + layout_.tile_floats(), row_bytes_);
      x += kTiles * layout_.tile_floats();
      if constexpr (kSet == 0) {
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kTiles == 2) _tile_dpbf16ps(1, 4, 7);
      } else {
        _tile_dpbf16ps(2, 4, 6);
        if constexpr (kTiles == 2) _tile_dpbf16ps(3, 4, 7);
      }
    }
    multiplied_.move_on(layout_.groups);
  }

  // y += scale * (what a group adds up to) + bias * (the sum of x over it).
  inline __attribute__((always_inline)) void add_sums(const float (*sums)[kLanes][kLanes], Outputs y) {
    const int64_t group = added_.group, n = added_.n;
    const int factor = (int)(group % kFactorGroups);
    if (factor == 0) read_factors(n, group);
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++) {
      const F x_sum = load(x_sums_ + (group * kTiles + tile) * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) {
        y[tile][i] = fma(x_sum, set1(bias_[i][factor]), y[tile][i]);
        y[tile][i] = fma(_mm512_load_ps(sums[tile][i]), set1(scale_[i][factor]), y[tile][i]);
      }
    }
    added_.move_on(layout_.groups);
    if (added_.group > 0) return;
    write_outputs(n, y);
    clear(y);
  }

  // In float32, as they belong to the numbers that weights are read as.
  void read_factors(int64_t n, int64_t group) {
    const F less = set1(-Numbers::kAdded), unit = set1(Numbers::kUnit);
    const int64_t left = layout_.groups - group;
    for (int i = 0; i < kLanes; i++) {
      auto* scales = (const uint16_t*)task_.scales + row(n + i) * task_.scales_row_stride + group;
      auto* biases = (const uint16_t*)task_.biases + row(n + i) * task_.biases_row_stride + group;
      bring_line(scales + kAhead * task_.scales_row_stride);
      bring_line(biases + kAhead * task_.biases_row_stride);
      const F scale = load_some<Element::bf16>(scales, left);
      _mm512_store_ps(scale_[i], mul(unit, scale));
      _mm512_store_ps(bias_[i], fma(less, scale, load_some<Element::bf16>(biases, left)));
    }
  }

  inline __attribute__((always_inline)) void write_outputs(int64_t n, Outputs y) {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++) {
      F block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) block[i] = y[tile][i];
      transpose(block);
      for (int64_t lane = 0, m = tile * kLanes; lane < kLanes && m < task_.rows; lane++, m++)
        store_outputs<Element::bf16>(task_, m, n, block[lane]);
    }
  }
};

template <int kBits>
struct LanesOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return LaneRows(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) {
    with_numbers(task, [&](auto numbers) { pack_lanes<decltype(numbers)>(task, (float*)packed); });
  }
  static void run(const FewTask& task, const void* packed) {
    auto* x = (const float*)packed;
    with_numbers(task, [&](auto numbers) {
      typedef decltype(numbers) Numbers;
      if (task.rows <= kLanes) return TileProduct<Numbers, 1>(task, x).run();
      TileProduct<Numbers, 2>(task, x).run();
    });
  }

 private:
  template <class Call>
  static void with_numbers(const QuantizedTask& task, Call call) {
    if (task.group == 32) return call(NumbersOfTiles<kBits, 1>());
    if (task.group == 64) return call(NumbersOfTiles<kBits, 2>());
    call(NumbersOfTiles<kBits, 4>());
  }
};

// Few rows of bfloat16: one or two as digits in vectors, some more as digits on tiles, others as they are.
struct OnTiles {
  static constexpr int kRows = kMostRowTiles * kLanes;
  template <int kBits, Element kElement>
  using One = OneInVectors<DigitUnits<kBits>, kElement>;
  template <int kBits, Element kElement>
  struct Few {
    static_assert(kElement == Element::bf16);

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
      if (task.rows <= kMostDigitRows) return call(DigitsOnTiles<kBits, kElement>());
      return call(LanesOnTiles<kBits>());
    }
  };
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
