// Few rows times quantized weights, more than one or two: the lanes go across outputs, so that a unit of x is
// read once for many of them.
//
// A word of packed weights gives some vectors of factors, each for one unit of x; a unit is broadcast from
// memory. The sum over a group is multiplied by the scales once; the biases meet the sum of x over the group.
// The order of the operations does not depend on the number of rows, nor do the bits of a row.
#pragma once

#include "cpu/quantized/codec_f32-inl.h"
#include "cpu/quantized/outliers-inl.h"
#include "cpu/quantized/transposed_words-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kFewRows = kLanes == 16 ? 16 : 8;           // at most
constexpr int kFewRowsAtOnce = kRegisters == 32 ? 8 : 4;  // that share a word's factors
constexpr int64_t kWordsAhead = 64;  // of a row, that are asked for; one request beside each word's products
constexpr int64_t kOutputsAhead = 64;  // whose scales and biases are asked for
constexpr int kSums = 2;  // of a row and an output, so that an addition need not wait for the one before

// x of a call, in batches of kFewRowsAtOnce rows, the last one of half as many if that will do. Those of a
// batch: [word][unit][row], then the sum of every group, [group][row]; rows that x lacks are zero. The sums
// are those of elements of x as they are multiplied.
template <class Units>
struct FewRows {
  int64_t rows, words, groups;

  explicit FewRows(const QuantizedTask& task)
      : rows(task.rows), words(task.groups * task.group * Units::kBits / 32), groups(task.groups) {}

  // Of the batch that begins with row m.
  int64_t batch_rows(int64_t m) const {
    return rows - m > kFewRowsAtOnce / 2 ? kFewRowsAtOnce : kFewRowsAtOnce / 2;
  }
  int64_t sums(int64_t batch_rows) const { return words * Units::kUnits * batch_rows; }
  int64_t batch_floats(int64_t batch_rows) const { return sums(batch_rows) + groups * batch_rows; }

  size_t floats() const {
    size_t all = 0;
    for (int64_t m = 0; m < rows; m += kFewRowsAtOnce) all += batch_floats(batch_rows(m));
    return all;
  }
};

template <class Units, Element kElement>
static void pack_few(const QuantizedTask& task, float* packed) {
  const FewRows<Units> layout(task);
  constexpr int kShare = 32 / Units::kBits;
  int64_t batch = 0;
  for (int64_t first = 0; first < task.rows; first += kFewRowsAtOnce, packed += layout.batch_floats(batch)) {
    batch = layout.batch_rows(first);
    const int64_t there = task.rows - first < batch ? task.rows - first : batch;
    if (there < batch) memset(packed, 0, layout.batch_floats(batch) * sizeof(float));
    for (int64_t m = 0; m < there; m++) {
      auto* x = (const StorageOf<kElement>*)task.x + (first + m) * task.x_row_stride;
      float* out = packed + m;
      for (int64_t g = 0; g < task.groups; g++, x += task.group) {
        float wide[128];
        packed[layout.sums(batch) + g * batch + m] = widen_group<Units, kElement>(x, task.group, wide);
        for (int e = 0; e < task.group; e += kShare)
          for (int unit = 0; unit < Units::kUnits; unit++, out += batch) *out = Units::pack(wide + e, unit);
      }
    }
  }
}

// dot[row][sum] += the factors of a word.
template <class Units, int kFactor, int MR>
VEC_FN void multiply_word(W word, const float* x, F (*dot)[kSums]) {
  if constexpr (kFactor < Units::kFactors) {
    const F factor = Units::template factor<kFactor>(word);
    const float* unit = x + Units::unit_of(kFactor) * MR;
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++)
      dot[m][kFactor % kSums] = Units::mac_broadcast(unit + m, factor, dot[m][kFactor % kSums]);
    multiply_word<Units, kFactor + 1, MR>(word, x, dot);
  }
}

// The sums of kLanes outputs, for a batch of MR rows.
template <class Units, Element kElement, int MR>
struct FewSums {
  typedef StorageOf<kElement> T;

  RowBlock<uint32_t> words;
  RowBlock<T> scales, biases;
  TurnedFactors<Units::kBits, kElement> factors;
  float turned[kLanes * kLanes];
  F acc[MR];

  // Those of the outputs from n on.
  FewSums(const QuantizedTask& task, int64_t n)
      : words(task.w + n * task.w_row_stride, task.w_row_stride, task.outputs - n,
              task.groups * task.group * Units::kBits / 32),
        scales((const T*)task.scales + n * task.scales_row_stride, task.scales_row_stride, task.outputs - n,
               task.groups),
        biases((const T*)task.biases + n * task.biases_row_stride, task.biases_row_stride, task.outputs - n,
               task.groups) {
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) acc[m] = zero();
  }

  // `next` leads from a word to the one of the row that is read after this one.
  VEC_FN void run(FewSums& sums, int group_words, int64_t next, const float* x, const float* x_sums) {
    const int64_t length = sums.words.length;
    const int part = group_words < kLanes ? group_words : kLanes;  // of a group, in one turn of words
    for (int64_t word = 0; word < length; word += kLanes) {
      turn_words(sums.words, word, sums.turned);
      const int64_t left = length - word;
      const int64_t ahead = left > kWordsAhead ? word + kWordsAhead : next + kWordsAhead - left;
      const int count = left < kLanes ? (int)left : kLanes;
      for (int begin = 0; begin < count; begin += part) {
        const int64_t group = (word + begin) / group_words;
        if ((word + begin) % group_words == 0) {
          if (group % kLanes == 0) sums.factors.read(sums.scales, sums.biases, group);
          add_biases(sums, group, x_sums + group * MR);
        }
        multiply(sums, group, begin, part, ahead, x + (word + begin) * Units::kUnits * MR);
      }
    }
  }

 private:
  // The biases of a group, times the sums of x over it.
  VEC_FN void add_biases(FewSums& sums, int64_t group, const float* x_sums) {
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++)
      sums.acc[m] = fma(sums.factors.bias[group % kLanes], set1(x_sums[m]), sums.acc[m]);
  }

  // Turned words of a group, from `begin` on. Beside each a row's words further on are asked for.
  VEC_FN void multiply(FewSums& sums, int64_t group, int begin, int count, int64_t ahead, const float* x) {
    F dot[MR][kSums];
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 2
      for (int s = 0; s < kSums; s++) dot[m][s] = zero();
    for (int word = begin; word < begin + count; word++, x += Units::kUnits * MR) {
      bring_line(sums.words.row[word] + ahead);
      multiply_word<Units, 0, MR>(Units::load(sums.turned + word * kLanes), x, dot);
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++)
      sums.acc[m] = fma(add(dot[m][0], dot[m][1]), sums.factors.scale[group % kLanes], sums.acc[m]);
  }
};

// kLanes outputs from n on of a batch whose first row is m.
template <class Units, Element kElement, int MR>
static void few_outputs(const FewTask& task, const FewRows<Units>& layout, const float* x, int64_t m,
                        int64_t n) {
  const int64_t next = kLanes * task.w_row_stride;  // perhaps of another task, or behind the end
  FewSums<Units, kElement, MR> sums(task, n);
  sums.run(sums, task.group * Units::kBits / 32, next, x, x + layout.sums(MR));
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
    if (m + i < task.rows) store_outputs<kElement>(task, m + i, n, sums.acc[i]);
}

template <class Units, Element kElement>
static void few_rows(const FewTask& task, const float* packed) {
  typedef StorageOf<kElement> T;
  const FewRows<Units> layout(task);
  for (int64_t n = 0; n < task.outputs; n += kLanes) {
    for (int64_t i = n + kOutputsAhead; i < n + kOutputsAhead + kLanes; i++) {
      bring_line((const T*)task.scales + i * task.scales_row_stride);
      bring_line((const T*)task.biases + i * task.biases_row_stride);
    }
    const float* x = packed;
    for (int64_t m = 0; m < task.rows; m += kFewRowsAtOnce) {
      const int64_t batch = layout.batch_rows(m);
      if (batch == kFewRowsAtOnce)
        few_outputs<Units, kElement, kFewRowsAtOnce>(task, layout, x, m, n);
      else
        few_outputs<Units, kElement, kFewRowsAtOnce / 2>(task, layout, x, m, n);
      x += layout.batch_floats(batch);
    }
  }
}

template <class Units, Element kElement>
struct FewInVectors {
  static size_t packed_bytes(const QuantizedTask& task) {
    return FewRows<Units>(task).floats() * sizeof(float);
  }
  static void pack(const QuantizedTask& task, void* packed) {
    pack_few<Units, kElement>(task, (float*)packed);
  }
  static void run(const FewTask& task, const void* packed) {
    few_rows<Units, kElement>(task, (const float*)packed);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
