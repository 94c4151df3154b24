// GEMV: one or two rows of x times quantized weights, limited by memory. The lanes run along the words of a
// row of weights, which are multiplied in the order of memory; each output sums its lanes last.
//
// x is packed as the operands of its codec, in the order of the words. Sums over a vector of words are
// multiplied by the scales of its quantization groups, each in the lanes of its words; biases are multiplied
// by the sums of x over the groups. The bits of a row do not depend on the other row, nor those of an output
// on the outputs that are calculated with it.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kGemvOutputs = kRegisters == 32 ? 4 : 2;  // that share each load of x
// Prefetch distances in words of a row of weights: to the second-level cache, scales and biases as far, and
// to the first-level cache.
constexpr int64_t kGemvL2Words = 4096 / kGemvOutputs;
constexpr int64_t kGemvL1Words = 64;
constexpr int kMaxGroupWords = 32;  // 128 numbers of 8 bits

// Packed x: [vector of words][operand][row][lane], then sums over groups, [vector of groups][row][lane].
// int8 digits: the scales of the groups follow, [vector of groups][row][lane], then one scale a row, in all
// lanes, which multiplies those scales and the sums. Beyond the end of x everything is zero.
template <class Codec>
struct GemvPacking {
  int64_t rows, words, groups, group_words;

  explicit GemvPacking(const QuantizedTask& task)
      : rows(task.rows < 2 ? 1 : 2), groups(task.num_groups), group_words(task.group_size * Codec::kBits / 32) {
    words = groups * group_words;
  }

  static int64_t vectors(int64_t count) { return (count + kLanes - 1) / kLanes; }
  int64_t sums() const { return vectors(words) * Codec::kOperands * rows * kLanes; }
  int64_t x_scales() const { return sums() + vectors(groups) * rows * kLanes; }
  int64_t row_scales() const { return x_scales() + vectors(groups) * rows * kLanes; }
  size_t floats() const { return Codec::kInt8 ? row_scales() + rows * kLanes : x_scales(); }
  // Of group g and row m, in the sums or the scales.
  int64_t group_lane(int64_t g, int64_t m) const { return (g / kLanes * rows + m) * kLanes + g % kLanes; }
};

// Divides the scales and sums of row m by its largest scale: their products with the scales of the weights
// are then of moderate size, whatever the size of x.
template <class Codec>
static void normalise_scales(const GemvPacking<Codec>& layout, int64_t m, float* packed) {
  float largest = 0;
  for (int64_t g = 0; g < layout.groups; g++) {
    const float scale = packed[layout.x_scales() + layout.group_lane(g, m)];
    if (scale > largest) largest = scale;
  }
  for (int64_t g = 0; g < layout.groups; g++) {
    packed[layout.x_scales() + layout.group_lane(g, m)] /= largest;
    packed[layout.sums() + layout.group_lane(g, m)] /= largest;
  }
  store(packed + layout.row_scales() + m * kLanes, set1(largest));
}

template <class Codec, Element kElement>
static void pack_gemv(const QuantizedTask& task, float* packed) {
  const GemvPacking<Codec> layout(task);
  memset(packed, 0, layout.floats() * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    for (int64_t g = 0; g < task.num_groups; g++, x += task.group_size) {
      float wide[128];
      packed[layout.sums() + layout.group_lane(g, m)] = convert_group<Codec, kElement>(x, task.group_size, wide);
      const auto place = [&](int64_t word, int operand) {
        return packed + ((word / kLanes * Codec::kOperands + operand) * layout.rows + m) * kLanes +
               word % kLanes;
      };
      const int words = (int)layout.group_words;
      if constexpr (Codec::kInt8)
        packed[layout.x_scales() + layout.group_lane(g, m)] =
            Codec::write_group(wide, words, g * words, place);
      else
        write_operands<Codec>(wide, words, g * words, place);
    }
    if constexpr (Codec::kInt8) {
      for (int64_t v = 0; v < layout.vectors(layout.words); v++)
        Codec::write_initial_sums(packed + (v * Codec::kOperands * layout.rows + m) * kLanes,
                                  layout.rows * kLanes);
      normalise_scales(layout, m, packed);
    }
  }
}

// dot[output][row] += a vector of words times their operands of x.
template <class Codec, int kIndex, int MR>
VEC_FN void dot_words(const W* words, const float* x, F (*dot)[MR]) {
  if constexpr (Codec::kInt8) {
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++) dot[i][m] = Codec::dot(words[i], x + m * kLanes, MR * kLanes);
  } else if constexpr (kIndex < Codec::kDecoded) {
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++) {
      const F decoded = Codec::template decode<kIndex>(words[i]);
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++)
        dot[i][m] =
            Codec::Mac::mac(decoded, load(x + (Codec::operand_of(kIndex) * MR + m) * kLanes), dot[i][m]);
    }
    dot_words<Codec, kIndex + 1, MR>(words, x, dot);
  }
}

// A vector of the words at p, of which `count` exist; the others are zero.
template <class Codec>
VEC_FN W load_words_at(const uint32_t* p, int64_t count) {
  if (count >= kLanes) return Codec::load((const float*)p);
  uint32_t part[kLanes] = {};
  memcpy(part, p, count * sizeof *p);
  return Codec::load((const float*)part);
}

// The group of each word of kLanes groups.
struct GroupOfWord {
  int32_t group[kMaxGroupWords * kLanes];

  explicit GroupOfWord(int64_t group_words) {
    int32_t* of = group;
    for (int32_t g = 0; g < kLanes; g++)
      for (int64_t word = 0; word < group_words; word++) *of++ = g;
  }
};

// Sums before their lanes are added up: [block][row][output][lane], kLanes outputs a block.
template <int MR>
struct GemvSums {
  static constexpr int64_t kRow = kLanes * kLanes, kBlock = MR * kRow;
  alignas(64) float lanes[kGemvOutputs * kBlock];
};

// kGemvOutputs outputs that are calculated together, `apart` outputs from each other. Each begins a run of
// `left` outputs, which are calculated next; the runs that follow begin kGemvOutputs * apart outputs later.
struct OutputRuns {
  int64_t first, apart, left;

  // The distance from element `at` of an output to the element that is read `later` elements later, where an
  // output has `stride` elements.
  int64_t distance(int64_t at, int64_t later, int64_t stride) const {
    return at + later < left * stride ? later : later + (kGemvOutputs - 1) * apart * stride;
  }
};

// Calculates the sums of `outputs`, which lie `sums_stride` floats from each other. Prefetch distances are
// chosen once for kLanes groups.
template <class Codec, Element kElement, int MR>
VEC_FN void accumulate_outputs(const QuantizedTask& task, const GemvPacking<Codec>& layout,
                               const GroupOfWord& lanes, const float* x, const OutputRuns& outputs,
                               float* sums, int64_t sums_stride) {
  typedef StorageOf<kElement> T;
  const F offset = set1(Codec::kOffset);
  const uint32_t* words[kGemvOutputs];
  const T *scales[kGemvOutputs], *biases[kGemvOutputs];
  F acc[kGemvOutputs][MR];
#pragma GCC unroll 4
  for (int i = 0; i < kGemvOutputs; i++) {
    const int64_t output = outputs.first + i * outputs.apart;
    const int64_t row = output < task.outputs ? output : task.outputs - 1;
    words[i] = task.w + row * task.w_row_stride;
    scales[i] = (const T*)task.scales + row * task.scales_row_stride;
    biases[i] = (const T*)task.biases + row * task.biases_row_stride;
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) acc[i][m] = zero();
  }
  const int64_t l2_groups = kGemvL2Words / layout.group_words;
  const float *x_sums = x + layout.sums(), *x_scales = x + layout.x_scales();
  for (int64_t group = 0; group < layout.groups; group += kLanes) {
    const int64_t left = layout.groups - group;
    const int64_t next_scales = group + outputs.distance(group, l2_groups, task.scales_row_stride);
    const int64_t next_biases = group + outputs.distance(group, l2_groups, task.biases_row_stride);
    F scale[kGemvOutputs][MR];
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++) {
      prefetch_l2(scales[i] + next_scales);
      prefetch_l2(biases[i] + next_biases);
      const F w_scale = load_some<kElement>(scales[i] + group, left);
      const F bias = fma(offset, w_scale, load_some<kElement>(biases[i] + group, left));
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++) {
        acc[i][m] = fma(bias, load(x_sums + (group * MR + m * kLanes)), acc[i][m]);
        scale[i][m] = Codec::kInt8 ? mul(w_scale, load(x_scales + (group * MR + m * kLanes))) : w_scale;
      }
    }
    const int64_t begin = group * layout.group_words;
    const int64_t end = left < kLanes ? layout.words : begin + kLanes * layout.group_words;
    const int64_t l2_distance = outputs.distance(begin, kGemvL2Words, task.w_row_stride);
    const int32_t* lane = lanes.group;
    for (int64_t word = begin; word < end;
         word += kLanes, lane += kLanes, x += Codec::kOperands * MR * kLanes) {
      W vector[kGemvOutputs];
      F dot[kGemvOutputs][MR];
#pragma GCC unroll 4
      for (int i = 0; i < kGemvOutputs; i++) {
        prefetch_l2(words[i] + word + l2_distance);
        prefetch_l1(words[i] + word + kGemvL1Words);
        vector[i] = load_words_at<Codec>(words[i] + word, end - word);
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) dot[i][m] = zero();
      }
      dot_words<Codec, 0, MR>(vector, x, dot);
#pragma GCC unroll 4
      for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) acc[i][m] = fma(dot[i][m], permute(scale[i][m], lane), acc[i][m]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) store(sums + i * sums_stride + m * GemvSums<MR>::kRow, acc[i][m]);
}

// Epilogue of a block of outputs from n on.
template <class Codec, Element kElement, int MR>
static void store_block(const TaskWithOutliers& task, const GemvPacking<Codec>& layout, const float* x,
                        const float* sums, int64_t n) {
  for (int64_t m = 0; m < MR; m++) {
    F y = sum_lanes(sums + m * GemvSums<MR>::kRow, kLanes);
    if constexpr (Codec::kInt8) y = mul(y, load(x + layout.row_scales() + m * kLanes));
    store_outputs<kElement>(task, m, n, y);
  }
}

// Outputs that are calculated together come from kGemvOutputs runs of equal length: a processor fetches more
// when it reads in several places (benches/LOG.md). The blocks that remain are calculated one by one, from
// neighbouring outputs.
template <class Codec, Element kElement, int MR>
static void gemv(const TaskWithOutliers& task, const float* x) {
  typedef GemvSums<MR> Sums;
  const GemvPacking<Codec> layout(task);
  const GroupOfWord lanes(layout.group_words);
  Sums sums;
  const int64_t run = task.outputs / kLanes / kGemvOutputs * kLanes;
  for (int64_t n = 0; n < run; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i++)
      accumulate_outputs<Codec, kElement, MR>(task, layout, lanes, x, {i, run, run - i},
                                              sums.lanes + (i - n) * kLanes, Sums::kBlock);
    for (int i = 0; i < kGemvOutputs; i++)
      store_block<Codec, kElement, MR>(task, layout, x, sums.lanes + i * Sums::kBlock, n + i * run);
  }
  for (int64_t n = kGemvOutputs * run; n < task.outputs; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i += kGemvOutputs)
      accumulate_outputs<Codec, kElement, MR>(task, layout, lanes, x, {i, 1, 1},
                                              sums.lanes + (i - n) * kLanes, kLanes);
    store_block<Codec, kElement, MR>(task, layout, x, sums.lanes, n);
  }
}

template <class Codec, Element kElement>
struct Gemv {
  static constexpr int kMaxRows = 2;

  static size_t packed_bytes(const QuantizedTask& task) {
    return GemvPacking<Codec>(task).floats() * sizeof(float);
  }
  static void pack(const QuantizedTask& task, void* packed) {
    Codec::in_fp_mode([&] { pack_gemv<Codec, kElement>(task, (float*)packed); });
  }
  static void run(const TaskWithOutliers& task, const void* packed) {
    Codec::in_fp_mode([&] {
      if (task.rows == 2) return gemv<Codec, kElement, 2>(task, (const float*)packed);
      gemv<Codec, kElement, 1>(task, (const float*)packed);
    });
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
