// One or two rows times quantized weights, at the speed of memory: lanes along the words of an output's row,
// so that weights are used as they come. What the lanes have added up is summed last.
//
// Each word of a vector gives factors for units of x, which lie in memory in the same order. A vector's sums
// are multiplied by the scales of its groups, each in the lanes of its words; the biases meet the sums of x
// over the groups. A row's bits do not depend on whether there is another.
#pragma once

#include "cpu/quantized_units-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kOneRows = 2;                            // at most
constexpr int kOneOutputs = kRegisters == 32 ? 4 : 2;  // that share each unit of x
constexpr int64_t kOneWordsAhead = 4096;               // of weights and their factors, that are asked for
constexpr int kMostGroupWords = 32;                    // 128 numbers of 8 bits

// x of a call: [vector of words][unit][row][lane], then the sums over groups, [vector of groups][row][lane].
// What is behind the end of x is zero.
template <class Units>
struct OneRows {
  int64_t rows, words, groups, group_words;

  explicit OneRows(const QuantizedTask& task)
      : rows(task.rows < 2 ? 1 : 2), groups(task.groups), group_words(task.group * Units::kBits / 32) {
    words = groups * group_words;
  }

  static int64_t vectors(int64_t count) { return (count + kLanes - 1) / kLanes; }
  int64_t sums() const { return vectors(words) * Units::kUnits * rows * kLanes; }
  size_t floats() const { return sums() + vectors(groups) * rows * kLanes; }
};

template <class Units, Element kElement>
static void pack_one(const QuantizedTask& task, float* packed) {
  const OneRows<Units> layout(task);
  constexpr int kShare = 32 / Units::kBits;  // of x beside a word
  memset(packed, 0, layout.floats() * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    for (int64_t g = 0; g < task.groups; g++, x += task.group) {
      float wide[128];
      const float sum = widen_group<kElement>(x, task.group, wide);
      packed[layout.sums() + (g / kLanes * layout.rows + m) * kLanes + g % kLanes] = sum;
      for (int i = 0; i < layout.group_words; i++) {
        const int64_t word = g * layout.group_words + i;
        float* out = packed + (word / kLanes * Units::kUnits * layout.rows + m) * kLanes + word % kLanes;
        for (int unit = 0; unit < Units::kUnits; unit++)
          out[unit * layout.rows * kLanes] = Units::pack(wide + i * kShare, unit);
      }
    }
  }
}

// dot[output][row] += the factors of a vector of words times their units of x.
template <class Units, int kFactor, int MR>
VEC_FN void multiply_words(const W* words, const float* x, F (*dot)[MR]) {
  if constexpr (kFactor < Units::kFactors) {
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
    for (int64_t word = 0; word < group_words * kLanes; word++) group[word] = (int32_t)(word / group_words);
  }
};

// kOneOutputs outputs from n on: sums[row][output][lane] of MR rows, kLanes outputs apart.
template <class Units, Element kElement, int MR>
VEC_FN void sum_outputs(const QuantizedTask& task, const OneRows<Units>& layout, const GroupLanes& lanes,
                        const float* x, int64_t n, float* sums) {
  typedef StorageOf<kElement> T;
  const F half = set1((float)(1 << (Units::kBits - 1)));
  const uint32_t* words[kOneOutputs];
  const T *scales[kOneOutputs], *biases[kOneOutputs];
  F acc[kOneOutputs][MR];
#pragma GCC unroll 4
  for (int i = 0; i < kOneOutputs; i++) {
    const int64_t row = n + i < task.outputs ? n + i : task.outputs - 1;
    words[i] = task.w + row * task.w_row_stride;
    scales[i] = (const T*)task.scales + row * task.scales_row_stride;
    biases[i] = (const T*)task.biases + row * task.biases_row_stride;
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) acc[i][m] = zero();
  }
  const int64_t factors_ahead = kOneWordsAhead / layout.group_words;
  const float* x_sums = x + layout.sums();
  for (int64_t group = 0; group < layout.groups; group += kLanes, x_sums += MR * kLanes) {
    const int64_t left = layout.groups - group;
    F scale[kOneOutputs];
#pragma GCC unroll 4
    for (int i = 0; i < kOneOutputs; i++) {
      __builtin_prefetch(scales[i] + group + factors_ahead);
      __builtin_prefetch(biases[i] + group + factors_ahead);
      scale[i] = load_some<kElement>(scales[i] + group, left);
      const F bias = fma(half, scale[i], load_some<kElement>(biases[i] + group, left));
#pragma GCC unroll 2
      for (int m = 0; m < MR; m++) acc[i][m] = fma(bias, load(x_sums + m * kLanes), acc[i][m]);
    }
    const int64_t begin = group * layout.group_words;
    const int64_t end = left < kLanes ? layout.words : begin + kLanes * layout.group_words;
    const int32_t* lane = lanes.group;
    for (int64_t word = begin; word < end; word += kLanes, lane += kLanes, x += Units::kUnits * MR * kLanes) {
      W vector[kOneOutputs];
      F dot[kOneOutputs][MR];
#pragma GCC unroll 4
      for (int i = 0; i < kOneOutputs; i++) {
        __builtin_prefetch(words[i] + word + kOneWordsAhead);
        vector[i] = words_at<Units>(words[i] + word, end - word);
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) dot[i][m] = zero();
      }
      multiply_words<Units, 0, MR>(vector, x, dot);
#pragma GCC unroll 4
      for (int i = 0; i < kOneOutputs; i++) {
        const F factor = pick(scale[i], lane);
#pragma GCC unroll 2
        for (int m = 0; m < MR; m++) acc[i][m] = fma(dot[i][m], factor, acc[i][m]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kOneOutputs; i++)
#pragma GCC unroll 2
    for (int m = 0; m < MR; m++) store(sums + (m * kLanes + i) * kLanes, acc[i][m]);
}

// The sum of the lanes of each of kLanes vectors.
VEC_FN F sum_lanes(const float* vectors) {
  F block[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++) block[i] = load(vectors + i * kLanes);
  transpose(block);
#pragma GCC unroll 4
  for (int count = kLanes / 2; count > 0; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) block[i] = add(block[i], block[i + count]);
  return block[0];
}

template <class Units, Element kElement, int MR>
static void one_rows(const QuantizedTask& task, const float* x) {
  const OneRows<Units> layout(task);
  const GroupLanes lanes(layout.group_words);
  float sums[MR * kLanes * kLanes];
  for (int64_t n = 0; n < task.outputs; n += kLanes) {
    for (int i = 0; i < kLanes; i += kOneOutputs)
      sum_outputs<Units, kElement, MR>(task, layout, lanes, x, n + i, sums + i * kLanes);
    for (int64_t m = 0; m < task.rows; m++)
      store_some<kElement>((StorageOf<kElement>*)task.y + m * task.y_row_stride + n,
                           sum_lanes(sums + m * kLanes * kLanes), task.outputs - n);
  }
}

template <class Units, Element kElement>
static void run_one(const QuantizedTask& task, const float* x) {
  if (task.rows == 2) return one_rows<Units, kElement, 2>(task, x);
  one_rows<Units, kElement, 1>(task, x);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
