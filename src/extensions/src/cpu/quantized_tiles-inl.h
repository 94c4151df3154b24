// Few rows times quantized weights on AMX tiles. Weights are read as numbers that bfloat16 holds exactly, and
// so are rows of x, or the terms of rows; scales and biases, in float32, come to what a group adds up to.
//
// Rows of weights are the A operand, as they lie in memory, and a row of x is a lane of the B operand; its
// terms come to the same sums, a product of tiles each. A unit of the work is one group of K of kLanes
// outputs, and its three parts (weights to bfloat16, products, sums times scales) run some units apart, so
// that what is read has been written well before (benches/LOG.md). Every lane adds up by itself, so the bits
// of a row do not depend on other rows.
#pragma once

#include <type_traits>

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_digits-inl.h"
#include "cpu/quantized_lanes-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kFactorGroups = kLanes;       // whose scales are widened at a time
constexpr int64_t kRowsAhead = 2 * kLanes;  // how far ahead weights and their factors are asked for

// Tiles 0 and 1 hold sums of a unit, and 2 and 3 those of the next; 4 holds weights, 5 x.
struct LaneTileConfig : TileConfig {
  explicit LaneTileConfig(int64_t lanes) {
    for (int tile = 0; tile < 6; tile++)
      if (tile != 4) row_bytes[tile] = (uint16_t)(lanes * sizeof(float));
  }
};

// How outputs are taken kLanes at a time, from `first(block)` on: the last block ends where they do, and some
// of its outputs are calculated twice. Fewer than kLanes are a block each, whose rows are all of that output:
// what is stored behind it is overwritten by the blocks that follow. That is slow, and rare: widths of models
// are multiples of 16.
struct OutputBlocks {
  int64_t outputs;

  bool whole() const { return outputs >= kLanes; }
  int64_t count() const { return whole() ? (outputs + kLanes - 1) / kLanes : outputs; }
  int64_t first(int64_t block) const {
    if (!whole()) return block;
    const int64_t n = block * kLanes;
    return n + kLanes <= outputs ? n : outputs - kLanes;
  }
  // Between rows of a block, if those of outputs are so far apart.
  int64_t stride(int64_t row_stride) const { return whole() ? row_stride : 0; }
};

// Scales and biases of kLanes outputs and some groups, in float32, as they belong to the numbers that weights
// are read as.
struct LaneFactors {
  alignas(64) float scale[kLanes][kFactorGroups], bias[kLanes][kFactorGroups];

  template <class Numbers, Element kElement>
  static void read(const FewTask& task, int64_t n, int64_t group, LaneFactors& to) {
    typedef StorageOf<kElement> T;
    const F less = set1(-Numbers::kAdded), unit = set1(Numbers::kUnit);
    // Copies: compilers believe that the stores below may change the task.
    const OutputBlocks blocks = {task.outputs};
    const int64_t left = task.groups - group;
    const int64_t scales_stride = blocks.stride(task.scales_row_stride);
    const int64_t biases_stride = blocks.stride(task.biases_row_stride);
    auto* scales = (const T*)task.scales + n * task.scales_row_stride + group;
    auto* biases = (const T*)task.biases + n * task.biases_row_stride + group;
    for (int i = 0; i < kLanes; i++, scales += scales_stride, biases += biases_stride) {
      bring_line(scales + kRowsAhead * scales_stride);
      bring_line(biases + kRowsAhead * biases_stride);
      const F scale = load_some<kElement>(scales, left);
      _mm512_store_ps(to.scale[i], mul(unit, scale));
      _mm512_store_ps(to.bias[i], fma(less, scale, load_some<kElement>(biases, left)));
    }
  }
};

// What the product below leaves to the element type, so that types share its code.
struct LaneAccess {
  void (*read_factors)(const FewTask& task, int64_t n, int64_t group, LaneFactors& to);
  void (*store)(const FewTask& task, int64_t m, int64_t n, F y);

  template <class Numbers, Element kElement>
  static LaneAccess of() {
    return {LaneFactors::read<Numbers, kElement>,
            [](const FewTask& task, int64_t m, int64_t n, F y) { store_outputs<kElement>(task, m, n, y); }};
  }
};

// All rows of a task, kTiles tiles of them, times its weights.
template <class Numbers, int kTiles>
class TileProduct {
  static constexpr int kSteps = Numbers::kSteps;  // of a group
  static constexpr int64_t kStepBytes = kStep * Numbers::kBits / 8, kGroupBytes = kSteps * kStepBytes;
  // Units from writing weights to their products, and to adding up their sums. What is read sooner waits, and
  // what is kept longer leaves less of the first cache to x.
  static constexpr int64_t kToProducts = 2, kToSums = 4;
  static constexpr int64_t kKept = 2;  // units whose weights and sums are kept
  static_assert(kKept >= kToProducts && kToSums > kToProducts && kKept >= kToSums - kToProducts);
  static constexpr int64_t kSecondTile = kTiles == 2 ? kLanes * 64 : 0;  // as `store_set` takes it

  // Where one of the three parts of the work is: a group of a block of outputs.
  struct Unit {
    int64_t block = 0, group = 0;

    void move_on(int64_t groups) {
      if (++group < groups) return;
      group = 0;
      block++;
    }
  };

  const FewTask& task_;
  const LaneAccess access_;
  const LaneRows& layout_;
  const float* const x_;
  const float *const x_sums_ = x_ + layout_.sums(), *const x_units_ = x_ + layout_.units();
  const int64_t row_bytes_ = layout_.lanes * sizeof(float);  // of a tile of x
  const OutputBlocks blocks_ = {task_.outputs};
  const int64_t units_ = blocks_.count() * layout_.groups;
  Unit written_, multiplied_, added_;
  const uint8_t* words_ = nullptr;  // of the block that is written
  alignas(64) uint16_t weights_[kKept][kSteps][kLanes][kStep];
  alignas(64) float sums_[kKept][kTiles][kLanes][kLanes] = {};  // lanes that narrow tiles lack stay zero
  LaneFactors factors_;

 public:
  TileProduct(const FewTask& task, const LaneAccess& access, const LaneRows& layout, const float* x)
      : task_(task), access_(access), layout_(layout), x_(x) {}

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

  VEC_FN void clear(Outputs y) {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++)
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) y[tile][i] = zero();
  }

  void write_zeros(Outputs y) {
    for (int64_t block = 0; block < blocks_.count(); block++) write_outputs(blocks_.first(block), y);
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
    const int64_t row_bytes = task_.w_row_stride * sizeof(uint32_t), stride = blocks_.stride(row_bytes);
    if (group == 0) words_ = (const uint8_t*)task_.w + blocks_.first(written_.block) * row_bytes;
    // Where rows lie behind each other a part of later ones, perhaps of another task or behind the end.
    prefetch(words_ + kRowsAhead * row_bytes + group * kLanes * kGroupBytes, kLanes * kGroupBytes);
    const uint8_t* p = words_ + group * kGroupBytes;  // moves with every fourth row, as in RowAddresses
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; step += Numbers::kTogether)
        Numbers::write(p + i % 4 * stride + step * kStepBytes, to + step, i);
      if (i % 4 == 3) p += 4 * stride;
    }
    written_.move_on(layout_.groups);
  }

  template <int kSet>
  inline __attribute__((always_inline)) void multiply(const uint16_t (*weights)[kLanes][kStep]) {
    const float* x = x_ + multiplied_.group * kSteps * layout_.step_floats();
    const int64_t terms = Numbers::kSeveralTerms ? layout_.terms : 1;
    zero_set<kSet>();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; step++) {
      _tile_loadd(4, weights[step], 64);
      for (int64_t term = 0; term < terms; term++) {
        _tile_loadd(5, x, row_bytes_);
        add_product<2 * kSet>();
        x += layout_.tile_floats();
        if constexpr (kTiles == 1) continue;
        _tile_loadd(5, x, row_bytes_);  // not into another register: see TileConfig
        add_product<2 * kSet + 1>();
        x += layout_.tile_floats();
      }
    }
    multiplied_.move_on(layout_.groups);
  }

  // y += scale * (what a group adds up to) + bias * (the sum of x over it).
  inline __attribute__((always_inline)) void add_sums(const float (*sums)[kLanes][kLanes], Outputs y) {
    const auto [block, group] = added_;
    const int factor = (int)(group % kFactorGroups);
    if (factor == 0) access_.read_factors(task_, blocks_.first(block), group, factors_);
    // From the middle one all are so near that an instruction names them in a byte.
    constexpr int kMiddle = kLanes / 2;
    const float *scale = &factors_.scale[kMiddle][factor], *bias = &factors_.bias[kMiddle][factor];
    __asm__("" : "+r"(scale), "+r"(bias));
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++) {
      const F x_sum = load(x_sums_ + (group * kTiles + tile) * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) {
        const int place = (i - kMiddle) * kFactorGroups;
        y[tile][i] = fma(x_sum, set1(bias[place]), y[tile][i]);
        y[tile][i] = fma(_mm512_load_ps(sums[tile][i]), set1(scale[place]), y[tile][i]);
      }
    }
    added_.move_on(layout_.groups);
    if (added_.group > 0) return;
    write_outputs(blocks_.first(block), y);
    clear(y);
  }

  inline __attribute__((always_inline)) void write_outputs(int64_t n, Outputs y) {
#pragma GCC unroll 2
    for (int tile = 0; tile < kTiles; tile++) {
      F block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) block[i] = y[tile][i];
      transpose(block);
      for (int64_t lane = 0, m = tile * kLanes; lane < kLanes && m < task_.rows; lane++, m++)
        access_.store(task_, m, n, mul(block[lane], set1(x_units_[m])));
    }
  }
};

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
      const auto access = LaneAccess::of<Numbers, kElement>();
      const LaneRows rows = layout(task);
      if (rows.tiles == 1) return TileProduct<Numbers, 1>(task, access, rows, (const float*)packed).run();
      TileProduct<Numbers, 2>(task, access, rows, (const float*)packed).run();
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

// Few rows: one or two as digits in vectors, up to ten of wide types as digits on tiles, others as terms.
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
      if constexpr (kElement != Element::bf16)
        if (task.rows <= kDigitRows) return call(DigitsOnTiles<kBits, kElement>());
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
