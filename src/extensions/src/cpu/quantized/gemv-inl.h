// One or two rows times quantized weights, at the speed of memory: lanes along the words of an output's row,
// so that weights are used as they come. What the lanes have added up is summed last.
//
// Each word of a vector is multiplied with units of x, which lie in memory in the same order. A vector's sums
// are multiplied by the scales of its groups, each in the lanes of its words; the biases meet the sums of x
// over the groups. A row's bits do not depend on whether there is another, nor do those of an output depend
// on which others are calculated with it.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kOneRows = 2;                            // at most
constexpr int kOneOutputs = kRegisters == 32 ? 4 : 2;  // that share each unit of x
// Words of weights that are asked for ahead, and as far of their factors, of each of these outputs.
constexpr int64_t kOneWordsAhead = 4096 / kOneOutputs;
constexpr int64_t kOneWordsNext = 64;  // words that are brought: four lines
constexpr int kMostGroupWords = 32;    // 128 numbers of 8 bits

// x of a call: [vector of words][unit][row][lane], then the sums over groups, [vector of groups][row][lane].
// Where x is in whole numbers, what one is worth in each group comes behind that in the same way, and then,
// in a vector a row, what one of those and of the sums is worth. What is behind the end of x is zero.
template <class Units>
struct OneRows {
  int64_t rows, words, groups, group_words;

  explicit OneRows(const QuantizedTask& task)
      : rows(task.rows < 2 ? 1 : 2), groups(task.groups), group_words(task.group * Units::kBits / 32) {
    words = groups * group_words;
  }

  static int64_t vectors(int64_t count) { return (count + kLanes - 1) / kLanes; }
  int64_t sums() const { return vectors(words) * Units::kUnits * rows * kLanes; }
  int64_t worths() const { return sums() + vectors(groups) * rows * kLanes; }
  int64_t row_worths() const { return worths() + vectors(groups) * rows * kLanes; }
  size_t floats() const { return Units::kWhole ? row_worths() + rows * kLanes : worths(); }
  // Of a row, in a vector of one of those.
  int64_t group_lane(int64_t g, int64_t m) const { return (g / kLanes * rows + m) * kLanes + g % kLanes; }
};

// The worths and sums of row m, in the largest worth of its groups: their products with scales then are
// numbers of usual size, whatever that of x.
template <class Units>
static void count_in_largest(const OneRows<Units>& layout, int64_t m, float* packed) {
  float largest = 0;
  for (int64_t g = 0; g < layout.groups; g++) {
    const float worth = packed[layout.worths() + layout.group_lane(g, m)];
    if (worth > largest) largest = worth;
  }
  for (int64_t g = 0; g < layout.groups; g++) {
    packed[layout.worths() + layout.group_lane(g, m)] /= largest;
    packed[layout.sums() + layout.group_lane(g, m)] /= largest;
  }
  store(packed + layout.row_worths() + m * kLanes, set1(largest));
}

template <class Units, Element kElement>
static void pack_one(const QuantizedTask& task, float* packed) {
  const OneRows<Units> layout(task);
  memset(packed, 0, layout.floats() * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    for (int64_t g = 0; g < task.groups; g++, x += task.group) {
      float wide[128];
      packed[layout.sums() + layout.group_lane(g, m)] = widen_group<Units, kElement>(x, task.group, wide);
      const auto place = [&](int64_t word, int unit) {
        return packed + ((word / kLanes * Units::kUnits + unit) * layout.rows + m) * kLanes + word % kLanes;
      };
      const int words = (int)layout.group_words;
      if constexpr (Units::kWhole)
        packed[layout.worths() + layout.group_lane(g, m)] = Units::write_group(wide, words, g * words, place);
      else
        write_shares<Units>(wide, words, g * words, place);
    }
    if constexpr (Units::kWhole) {
      for (int64_t v = 0; v < layout.vectors(layout.words); v++)
        Units::write_beginnings(packed + (v * Units::kUnits * layout.rows + m) * kLanes,
                                layout.rows * kLanes);
      count_in_largest(layout, m, packed);
    }
  }
}

// dot[output][row] += a vector of words times their units of x, factor by factor unless they are whole.
template <class Units, int kFactor, int MR>
VEC_FN void multiply_words(const W* words, const float* x, F (*dot)[MR]) {
  if constexpr (Units::kWhole) {
#pragma GCC unroll 4
    for (int i = 0; i < kOneOutputs; i++)
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++) dot[i][m] = Units::dot(words[i], x + m * kLanes, MR * kLanes);
  } else if constexpr (kFactor < Units::kFactors) {
#pragma GCC unroll 4
    for (int i = 0; i < kOneOutputs; i++) {
      const F factor = Units::template factor<kFactor>(words[i]);
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++)
        dot[i][m] = Units::mac(factor, load(x + (Units::unit_of(kFactor) * MR + m) * kLanes), dot[i][m]);
    }
    multiply_words<Units, kFactor + 1, MR>(words, x, dot);
  }
}

// Words from p on, of which `count` are there; zeros behind them.
template <class Units>
VEC_FN W words_at(const uint32_t* p, int64_t count) {
  if (count >= kLanes) return Units::load((const float*)p);
  uint32_t part[kLanes] = {};
  memcpy(part, p, count * sizeof *p);
  return Units::load((const float*)part);
}

// Of each word of kLanes groups, its group.
struct GroupLanes {
  int32_t group[kMostGroupWords * kLanes];

  explicit GroupLanes(int64_t group_words) {
    int32_t* of = group;
    for (int32_t g = 0; g < kLanes; g++)
      for (int64_t word = 0; word < group_words; word++) *of++ = g;
  }
};

// The lanes of some outputs' sums: [block][row][output][lane], kLanes outputs a block.
template <int MR>
struct OneSums {
  static constexpr int64_t kRow = kLanes * kLanes, kBlock = MR * kRow;
  alignas(64) float lanes[kOneOutputs * kBlock];
};

// Outputs that are calculated together: kOneOutputs, `apart` from each other. `left` of the outputs in a row
// that begins with each of them come next, then those of the next such rows.
struct OneOutputs {
  int64_t first, apart, left;

  // How much further on than `at` lies what is read `later`, of what an output has `stride` of.
  int64_t ahead(int64_t at, int64_t later, int64_t stride) const {
    return at + later < left * stride ? later : later + (kOneOutputs - 1) * apart * stride;
  }
};

// Calculates the lanes of the sums of `outputs`, `sums_apart` floats from output to output. How far ahead is
// asked for is decided once for kLanes groups.
template <class Units, Element kElement, int MR>
VEC_FN void sum_outputs(const QuantizedTask& task, const OneRows<Units>& layout, const GroupLanes& lanes,
                        const float* x, const OneOutputs& outputs, float* sums, int64_t sums_apart) {
  typedef StorageOf<kElement> T;
  const F offset = set1(Units::kOffset);
  const uint32_t* words[kOneOutputs];
  const T *scales[kOneOutputs], *biases[kOneOutputs];
  F acc[kOneOutputs][MR];
#pragma GCC unroll 4
  for (int i = 0; i < kOneOutputs; i++) {
    const int64_t output = outputs.first + i * outputs.apart;
    const int64_t row = output < task.outputs ? output : task.outputs - 1;
    words[i] = task.w + row * task.w_row_stride;
    scales[i] = (const T*)task.scales + row * task.scales_row_stride;
    biases[i] = (const T*)task.biases + row * task.biases_row_stride;
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) acc[i][m] = zero();
  }
  const int64_t factors_ahead = kOneWordsAhead / layout.group_words;
  const float *x_sums = x + layout.sums(), *worths = x + layout.worths();
  for (int64_t group = 0; group < layout.groups; group += kLanes) {
    const int64_t left = layout.groups - group;
    const int64_t next_scales = group + outputs.ahead(group, factors_ahead, task.scales_row_stride);
    const int64_t next_biases = group + outputs.ahead(group, factors_ahead, task.biases_row_stride);
    F scale[kOneOutputs][MR];
#pragma GCC unroll 4
    for (int i = 0; i < kOneOutputs; i++) {
      ask_for_line(scales[i] + next_scales);
      ask_for_line(biases[i] + next_biases);
      const F given = load_some<kElement>(scales[i] + group, left);
      const F bias = fma(offset, given, load_some<kElement>(biases[i] + group, left));
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++) {
        acc[i][m] = fma(bias, load(x_sums + (group * MR + m * kLanes)), acc[i][m]);
        scale[i][m] = Units::kWhole ? mul(given, load(worths + (group * MR + m * kLanes))) : given;
      }
    }
    const int64_t begin = group * layout.group_words;
    const int64_t end = left < kLanes ? layout.words : begin + kLanes * layout.group_words;
    const int64_t asked = outputs.ahead(begin, kOneWordsAhead, task.w_row_stride);
    const int32_t* lane = lanes.group;
    for (int64_t word = begin; word < end; word += kLanes, lane += kLanes, x += Units::kUnits * MR * kLanes) {
      W vector[kOneOutputs];
      F dot[kOneOutputs][MR];
#pragma GCC unroll 4
      for (int i = 0; i < kOneOutputs; i++) {
        ask_for_line(words[i] + word + asked);
        bring_line(words[i] + word + kOneWordsNext);
        vector[i] = words_at<Units>(words[i] + word, end - word);
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) dot[i][m] = zero();
      }
      multiply_words<Units, 0, MR>(vector, x, dot);
#pragma GCC unroll 4
      for (int i = 0; i < kOneOutputs; i++)
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) acc[i][m] = fma(dot[i][m], pick(scale[i][m], lane), acc[i][m]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kOneOutputs; i++)
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) store(sums + i * sums_apart + m * OneSums<MR>::kRow, acc[i][m]);
}

// A block's outputs, from n on, from the lanes of their sums.
template <class Units, Element kElement, int MR>
static void finish_block(const FewTask& task, const OneRows<Units>& layout, const float* x, const float* sums,
                         int64_t n) {
  for (int64_t m = 0; m < MR; m++) {
    F y = sum_lanes(sums + m * OneSums<MR>::kRow, kLanes);
    if constexpr (Units::kWhole) y = mul(y, load(x + layout.row_worths() + m * kLanes));
    store_outputs<kElement>(task, m, n, y);
  }
}

// Outputs that are calculated together come from kOneOutputs parts of the task, as long as each other: a
// processor fetches more when it reads in several places (benches/LOG.md). Blocks that are left over follow
// one by one, from neighbours.
template <class Units, Element kElement, int MR>
static void one_rows(const FewTask& task, const float* x) {
  typedef OneSums<MR> Sums;
  const OneRows<Units> layout(task);
  const GroupLanes lanes(layout.group_words);
  Sums sums;
  const int64_t part = task.outputs / kLanes / kOneOutputs * kLanes;
  for (int64_t n = 0; n < part; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i++)
      sum_outputs<Units, kElement, MR>(task, layout, lanes, x, {i, part, part - i},
                                       sums.lanes + (i - n) * kLanes, Sums::kBlock);
    for (int i = 0; i < kOneOutputs; i++)
      finish_block<Units, kElement, MR>(task, layout, x, sums.lanes + i * Sums::kBlock, n + i * part);
  }
  for (int64_t n = kOneOutputs * part; n < task.outputs; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i += kOneOutputs)
      sum_outputs<Units, kElement, MR>(task, layout, lanes, x, {i, 1, 1}, sums.lanes + (i - n) * kLanes,
                                       kLanes);
    finish_block<Units, kElement, MR>(task, layout, x, sums.lanes, n);
  }
}

template <class Units, Element kElement>
struct OneInVectors {
  static size_t packed_bytes(const QuantizedTask& task) {
    return OneRows<Units>(task).floats() * sizeof(float);
  }
  static void pack(const QuantizedTask& task, void* packed) {
    Units::in_mode([&] { pack_one<Units, kElement>(task, (float*)packed); });
  }
  static void run(const FewTask& task, const void* packed) {
    Units::in_mode([&] {
      if (task.rows == 2) return one_rows<Units, kElement, 2>(task, (const float*)packed);
      one_rows<Units, kElement, 1>(task, (const float*)packed);
    });
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
