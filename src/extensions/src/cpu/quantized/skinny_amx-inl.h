// Skinny GEMM with quantized weights on AMX. Weights are decoded exactly to bfloat16 or int8; the sums of a
// quantization group are multiplied by its scales in float32.
//
// Rows of weights are the A operand, in their order in memory. A lane of the B operand is a row of x, whose
// split parts are added to the same sums (pack_bf16_amx-inl.h), or an int8 digit of a row
// (pack_int8_amx-inl.h). A unit of work is a quantization group of kLanes outputs. Its three stages (decode,
// tile products, accumulate) are pipelined: each works on an earlier unit than the one before it, so that no
// load waits for a recent store (benches/LOG.md). Lanes are independent, so the bits of a row do not depend
// on other rows.
#pragma once

#include "cpu/gemm/tiles_amx-inl.h"
#include "cpu/quantized/accumulate_amx-inl.h"
#include "cpu/quantized/codec/amx-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t kPrefetchRows = 2 * kLanes;  // prefetch distance of weights, scales and biases

// Tiles 0 and 1 hold the sums of a unit, 2 and 3 those of the next; 4 holds weights, 5 x.
struct LaneTileConfig : TileConfig {
  LaneTileConfig(int lane_bytes, int weight_bytes) {
    for (int tile = 0; tile < 6; tile++) row_bytes[tile] = (uint16_t)lane_bytes;
    row_bytes[4] = (uint16_t)weight_bytes;
    rows[5] = (uint8_t)(weight_bytes / 4);
  }
};

// Blocks of kLanes outputs, from first(block) on. The last block ends with the last output and computes some
// outputs twice. With fewer than kLanes outputs there is one block per output, its row repeated kLanes times
// (stride 0); lanes after the first are overwritten by the next blocks. Slow, but widths of models are
// multiples of 16.
struct OutputBlocks {
  int64_t outputs;

  bool whole() const { return outputs >= kLanes; }
  int64_t count() const { return whole() ? (outputs + kLanes - 1) / kLanes : outputs; }
  int64_t first(int64_t block) const {
    if (!whole()) return block;
    const int64_t n = block * kLanes;
    return n + kLanes <= outputs ? n : outputs - kLanes;
  }
  // The stride between rows of a block, from that of the matrix.
  int64_t stride(int64_t row_stride) const { return whole() ? row_stride : 0; }
};

// Reads the scales and biases of kLanes outputs and kScaleGroups groups, in float32: bias + kZeroPoint *
// scale, for decoded weights.
template <class Codec, Element kElement, class Scales>
static void read_scales(const TaskWithOutliers& task, int64_t n, int64_t group, Scales& to) {
  typedef StorageOf<kElement> T;
  const F zero_point = set1(Codec::kZeroPoint);
  // Copies, because the compiler must assume that the stores below change the task.
  const OutputBlocks blocks = {task.outputs};
  const int64_t left = task.num_groups - group;
  const int64_t scales_stride = blocks.stride(task.scales_row_stride);
  const int64_t biases_stride = blocks.stride(task.biases_row_stride);
  auto* scales = (const T*)task.scales + n * task.scales_row_stride;
  auto* biases = (const T*)task.biases + n * task.biases_row_stride;
  // Prefetches a part of later rows, as `decode` does of words.
  constexpr int64_t kCount = kLanes * kScaleGroups, kLineElements = 64 / sizeof(T);
  for (int64_t at = group * kLanes; at < group * kLanes + kCount; at += kLineElements) {
    prefetch_l1(scales + kPrefetchRows * scales_stride + at);
    prefetch_l1(biases + kPrefetchRows * biases_stride + at);
  }
  for (int i = 0; i < kLanes; i += 2) {
    F scale[2], bias[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++, scales += scales_stride, biases += biases_stride) {
      scale[j] = load_some<kElement>(scales + group, left);
      bias[j] = fma(zero_point, scale[j], load_some<kElement>(biases + group, left));
    }
    to.put(i, scale, bias);
  }
}

// The functions that depend on the element type, as pointers: all types share the code of SkinnyTiles.
template <class Scales>
struct TypedSteps {
  void (*read)(const TaskWithOutliers& task, int64_t n, int64_t group, Scales& to);
  void (*store)(const TaskWithOutliers& task, int64_t n, const F* rows, const float* row_scales);

  template <class Codec, Element kElement>
  static TypedSteps of() {
    return {read_scales<Codec, kElement, Scales>,
            [](const TaskWithOutliers& task, int64_t n, const F* rows, const float* row_scales) {
              for (int64_t m = 0; m < task.rows; m++)
                store_outputs<kElement>(task, m, n, mul(rows[m], set1(row_scales[m])));
            }};
  }
};

// The rows of a task, packed as in `Layout`, times its weights.
template <class Codec, class Accumulator, class Layout>
class SkinnyTiles {
  typedef TypedSteps<typename Accumulator::Scales> Typed;
  static constexpr int kTiles = Accumulator::kTiles;
  static constexpr int kSteps = Codec::kSteps;  // of a group
  static constexpr int64_t kStepBytes = Codec::kStepQuants * Codec::kBits / 8,
                           kGroupBytes = kSteps * kStepBytes;
  // Units from decoding weights to their products, and to accumulating their sums. Shorter distances stall,
  // longer ones leave less of the first-level cache to x.
  static constexpr int64_t kToProducts = 2, kToSums = 4;
  static constexpr int64_t kBuffers = 2;  // of decoded weights and of sums, for consecutive units
  static_assert(kBuffers >= kToProducts && kToSums > kToProducts && kBuffers >= kToSums - kToProducts);
  // Bytes of a row of a tile: of weights, and of x and sums.
  static constexpr int kWeightBytes = Codec::kStepQuants * (Codec::kInt8 ? 1 : 2);
  static constexpr int kLaneBytes = Accumulator::kWidth * sizeof(float);
  static constexpr int kTileFloats = kWeightBytes / 4 * Accumulator::kWidth;     // of x
  static constexpr int64_t kSecondTile = kTiles == 2 ? kLanes * kLaneBytes : 0;  // as `store_set` takes it

  // The position of a stage: a quantization group of a block of outputs.
  struct Unit {
    int64_t block = 0, group = 0;

    void advance(int64_t groups) {
      if (++group < groups) return;
      group = 0;
      block++;
    }
  };

  const TaskWithOutliers& task_;
  const Typed typed_;
  const Layout& layout_;
  const float* const x_;
  const float *const x_sums_ = x_ + layout_.sums(), *const row_scales_ = x_ + layout_.row_scales();
  const OutputBlocks blocks_ = {task_.outputs};
  const int64_t units_ = blocks_.count() * layout_.groups;
  Unit decoded_, multiplied_, accumulated_;
  const uint8_t* words_ = nullptr;  // of the block that is decoded
  alignas(64) uint8_t weights_[kBuffers][kSteps][kLanes][64];
  alignas(64) float sums_[kBuffers][kTiles * kLanes * Accumulator::kWidth];
  typename Accumulator::Scales scales_;

 public:
  SkinnyTiles(const TaskWithOutliers& task, const Typed& typed, const Layout& layout, const float* x)
      : task_(task), typed_(typed), layout_(layout), x_(x) {}

  void run() {
    Accumulator y;
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
  void write_zeros(Accumulator& y) {
    for (int64_t block = 0; block < blocks_.count(); block++) write_outputs(blocks_.first(block), y);
  }

  // Decodes `unit`, and runs the other two stages of earlier units.
  template <int kSet>
  inline __attribute__((always_inline)) void pass(int64_t unit, Accumulator& y) {
    const int64_t product = unit - kToProducts, before = product - 1, sum = unit - kToSums;
    compiler_barrier();
    if (product >= 0 && product < units_) multiply<kSet>(weights_[product % kBuffers]);
    if (before >= 0 && before < units_)
      store_set<1 - kSet>((char*)sums_[before % kBuffers], kSecondTile, kLaneBytes);
    compiler_barrier();
    if (unit < units_) decode(weights_[unit % kBuffers]);
    if (sum >= 0 && sum < units_) accumulate(sums_[sum % kBuffers], y);
  }

  // [step][output][quant]
  inline __attribute__((always_inline)) void decode(uint8_t (*to)[kLanes][64]) {
    const int64_t group = decoded_.group;
    const int64_t row_bytes = task_.w_row_stride * sizeof(uint32_t), stride = blocks_.stride(row_bytes);
    if (group == 0) words_ = (const uint8_t*)task_.w + blocks_.first(decoded_.block) * row_bytes;
    // If rows are contiguous, a part of later rows, perhaps of another task or beyond the end.
    prefetch(words_ + kPrefetchRows * row_bytes + group * kLanes * kGroupBytes, kLanes * kGroupBytes);
    const uint8_t* p = words_ + group * kGroupBytes;  // advances with every fourth row, as in RowAddresses
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; step += Codec::kStepsAtOnce)
        Codec::decode(p + i % 4 * stride + step * kStepBytes, to + step, i);
      if (i % 4 == 3) p += 4 * stride;
    }
    decoded_.advance(layout_.groups);
  }

  template <int kSet>
  inline __attribute__((always_inline)) void multiply(const uint8_t (*weights)[kLanes][64]) {
    int64_t parts = 1;
    if constexpr (Codec::kSplitX) parts = layout_.parts;
    const float* x = x_ + multiplied_.group * kSteps * parts * kTiles * kTileFloats;
    zero_set<kSet>();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; step++) {
      _tile_loadd(4, weights[step], 64);
      for (int64_t part = 0; part < parts; part++) {
        _tile_loadd(5, x, kLaneBytes);
        add_product<2 * kSet, Codec::kInt8>();
        x += kTileFloats;
        if constexpr (kTiles == 1) continue;
        _tile_loadd(5, x, kLaneBytes);  // not into another register: see TileConfig
        add_product<2 * kSet + 1, Codec::kInt8>();
        x += kTileFloats;
      }
    }
    multiplied_.advance(layout_.groups);
  }

  inline __attribute__((always_inline)) void accumulate(const float* sums, Accumulator& y) {
    const auto [block, group] = accumulated_;
    const int scale_group = (int)(group % kScaleGroups);
    if (scale_group == 0) typed_.read(task_, blocks_.first(block), group, scales_);
    y.add_group(sums, x_sums_ + group * Accumulator::kGroupFloats, scales_, scale_group);
    accumulated_.advance(layout_.groups);
    if (accumulated_.group > 0) return;
    write_outputs(blocks_.first(block), y);
    y.clear();
  }

  inline __attribute__((always_inline)) void write_outputs(int64_t n, const Accumulator& y) {
    F rows[kTiles * kLanes];
    y.transpose_to_rows(rows);
    typed_.store(task_, n, rows, row_scales_);
  }
};

template <class Codec, class Accumulator, Element kElement, class Layout>
static void skinny_amx(const TaskWithOutliers& task, const Layout& layout, const void* packed) {
  const auto typed = TypedSteps<typename Accumulator::Scales>::template of<Codec, kElement>();
  SkinnyTiles<Codec, Accumulator, Layout>(task, typed, layout, (const float*)packed).run();
}

template <int kValue>
struct Constant {
  constexpr int operator()() const { return kValue; }
};

// Calls call(group_size) with the size of the task's quantization groups as a constant, with denormals
// enabled.
template <class Call>
static void with_group_size(const QuantizedTask& task, Call call) {
  with_denormals([&] {
    if (task.group_size == 32) return call(Constant<32>());
    if (task.group_size == 64) return call(Constant<64>());
    call(Constant<128>());
  });
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
