// Few rows times quantized weights on AMX tiles. Weights are read as numbers that a tile's elements hold
// exactly; scales and biases, in float32, come to what a group adds up to.
//
// Rows of weights are the A operand, as they lie in memory. A lane of the B operand is a row of x, whose
// terms come to the same sums, a product of tiles each (cpu/quantized/pack_bf16_amx-inl.h), or one digit of
// a row (cpu/quantized/pack_int8_amx-inl.h). A unit of the work is one group of K of kLanes outputs,
// and its three parts (weights to numbers, products, sums times scales) run some units apart, so that what is
// read has been written well before (benches/LOG.md). Every lane adds up by itself, so the bits of a row do
// not depend on other rows.
#pragma once

#include "cpu/gemm/microkernel_amx-inl.h"
#include "cpu/quantized/accumulate_amx-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t kRowsAhead = 2 * kLanes;  // how far ahead weights and their factors are asked for

// Tiles 0 and 1 hold sums of a unit, and 2 and 3 those of the next; 4 holds weights, 5 x.
struct LaneTileConfig : TileConfig {
  LaneTileConfig(int lane_bytes, int weight_bytes) {
    for (int tile = 0; tile < 6; tile++) row_bytes[tile] = (uint16_t)lane_bytes;
    row_bytes[4] = (uint16_t)weight_bytes;
    rows[5] = (uint8_t)(weight_bytes / 4);
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
template <class Numbers, Element kElement, class Factors>
static void read_factors(const FewTask& task, int64_t n, int64_t group, Factors& to) {
  typedef StorageOf<kElement> T;
  const F less = set1(-Numbers::kAdded);
  // Copies: compilers believe that the stores below may change the task.
  const OutputBlocks blocks = {task.outputs};
  const int64_t left = task.groups - group;
  const int64_t scales_stride = blocks.stride(task.scales_row_stride);
  const int64_t biases_stride = blocks.stride(task.biases_row_stride);
  auto* scales = (const T*)task.scales + n * task.scales_row_stride;
  auto* biases = (const T*)task.biases + n * task.biases_row_stride;
  // A part of later rows, as for the weights' words.
  constexpr int64_t kAsked = kLanes * kFactorGroups, kLine = 64 / sizeof(T);
  for (int64_t at = group * kLanes; at < group * kLanes + kAsked; at += kLine) {
    bring_line(scales + kRowsAhead * scales_stride + at);
    bring_line(biases + kRowsAhead * biases_stride + at);
  }
  for (int i = 0; i < kLanes; i += 2) {
    F scale[2], bias[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++, scales += scales_stride, biases += biases_stride) {
      scale[j] = load_some<kElement>(scales + group, left);
      bias[j] = fma(less, scale[j], load_some<kElement>(biases + group, left));
    }
    to.put(i, scale, bias);
  }
}

// What the product below leaves to the element type, so that types share its code.
template <class Factors>
struct LaneAccess {
  void (*read)(const FewTask& task, int64_t n, int64_t group, Factors& to);
  void (*store)(const FewTask& task, int64_t n, const F* rows, const float* units);

  template <class Numbers, Element kElement>
  static LaneAccess of() {
    return {read_factors<Numbers, kElement, Factors>,
            [](const FewTask& task, int64_t n, const F* rows, const float* units) {
              for (int64_t m = 0; m < task.rows; m++)
                store_outputs<kElement>(task, m, n, mul(rows[m], set1(units[m])));
            }};
  }
};

// All rows of a task, which lie as `Layout` has them, times its weights.
template <class Numbers, class Sums, class Layout>
class TileProduct {
  typedef LaneAccess<typename Sums::Factors> Access;
  static constexpr int kTiles = Sums::kTiles;
  static constexpr int kSteps = Numbers::kSteps;  // of a group
  static constexpr int64_t kStepBytes = Numbers::kStepNumbers * Numbers::kBits / 8,
                           kGroupBytes = kSteps * kStepBytes;
  // Units from writing weights to their products, and to adding up their sums. What is read sooner waits, and
  // what is kept longer leaves less of the first cache to x.
  static constexpr int64_t kToProducts = 2, kToSums = 4;
  static constexpr int64_t kKept = 2;  // units whose weights and sums are kept
  static_assert(kKept >= kToProducts && kToSums > kToProducts && kKept >= kToSums - kToProducts);
  // Of a row of weights' tile, and of x and sums.
  static constexpr int kWeightBytes = Numbers::kStepNumbers * (Numbers::kWhole ? 1 : 2);
  static constexpr int kLaneBytes = Sums::kWidth * sizeof(float);
  static constexpr int kTileFloats = kWeightBytes / 4 * Sums::kWidth;            // of x
  static constexpr int64_t kSecondTile = kTiles == 2 ? kLanes * kLaneBytes : 0;  // as `store_set` takes it

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
  const Access access_;
  const Layout& layout_;
  const float* const x_;
  const float *const x_sums_ = x_ + layout_.sums(), *const x_units_ = x_ + layout_.units();
  const OutputBlocks blocks_ = {task_.outputs};
  const int64_t units_ = blocks_.count() * layout_.groups;
  Unit written_, multiplied_, added_;
  const uint8_t* words_ = nullptr;  // of the block that is written
  alignas(64) uint8_t weights_[kKept][kSteps][kLanes][64];
  alignas(64) float sums_[kKept][kTiles * kLanes * Sums::kWidth];
  typename Sums::Factors factors_;

 public:
  TileProduct(const FewTask& task, const Access& access, const Layout& layout, const float* x)
      : task_(task), access_(access), layout_(layout), x_(x) {}

  void run() {
    Sums y;
    y.clear();
    if (layout_.groups == 0) return write_zeros(y);
    load_config(LaneTileConfig(kLaneBytes, kWeightBytes));
    for (int64_t unit = 0; unit < units_ + kToSums; unit += 2) {
      pass<0>(unit, y);
      pass<1>(unit + 1, y);
    }
    _tile_release();
  }

 private:
  void write_zeros(Sums& y) {
    for (int64_t block = 0; block < blocks_.count(); block++) write_outputs(blocks_.first(block), y);
  }

  // The weights of `unit`, and the other two parts of units before it.
  template <int kSet>
  inline __attribute__((always_inline)) void pass(int64_t unit, Sums& y) {
    const int64_t product = unit - kToProducts, before = product - 1, sum = unit - kToSums;
    settle_stores();
    if (product >= 0 && product < units_) multiply<kSet>(weights_[product % kKept]);
    if (before >= 0 && before < units_)
      store_set<1 - kSet>((char*)sums_[before % kKept], kSecondTile, kLaneBytes);
    settle_stores();
    if (unit < units_) write_weights(weights_[unit % kKept]);
    if (sum >= 0 && sum < units_) add_sums(sums_[sum % kKept], y);
  }

  // [step][output][number]
  inline __attribute__((always_inline)) void write_weights(uint8_t (*to)[kLanes][64]) {
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
  inline __attribute__((always_inline)) void multiply(const uint8_t (*weights)[kLanes][64]) {
    int64_t terms = 1;
    if constexpr (Numbers::kSeveralTerms) terms = layout_.terms;
    const float* x = x_ + multiplied_.group * kSteps * terms * kTiles * kTileFloats;
    zero_set<kSet>();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; step++) {
      _tile_loadd(4, weights[step], 64);
      for (int64_t term = 0; term < terms; term++) {
        _tile_loadd(5, x, kLaneBytes);
        add_product<2 * kSet, Numbers::kWhole>();
        x += kTileFloats;
        if constexpr (kTiles == 1) continue;
        _tile_loadd(5, x, kLaneBytes);  // not into another register: see TileConfig
        add_product<2 * kSet + 1, Numbers::kWhole>();
        x += kTileFloats;
      }
    }
    multiplied_.move_on(layout_.groups);
  }

  inline __attribute__((always_inline)) void add_sums(const float* sums, Sums& y) {
    const auto [block, group] = added_;
    const int factor = (int)(group % kFactorGroups);
    if (factor == 0) access_.read(task_, blocks_.first(block), group, factors_);
    y.add_group(sums, x_sums_ + group * Sums::kGroupFloats, factors_, factor);
    added_.move_on(layout_.groups);
    if (added_.group > 0) return;
    write_outputs(blocks_.first(block), y);
    y.clear();
  }

  inline __attribute__((always_inline)) void write_outputs(int64_t n, const Sums& y) {
    F rows[kTiles * kLanes];
    y.give_rows(rows);
    access_.store(task_, n, rows, x_units_);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
