// Skinny GEMM with quantized weights. The lanes are outputs, so that each operand of x is broadcast once for
// kLanes of them.
//
// A word decodes into vectors, each multiplied with one operand of x (codec/f32-inl.h). The sum over a
// quantization group is multiplied by its scales once; biases are multiplied by the sum of x over the group.
// The order of operations, and so the bits of a row, do not depend on the number of rows.
#pragma once

#include "cpu/quantized/codec/f32-inl.h"
#include "cpu/quantized/codec/transposed_words-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kSkinnyBatch = kRegisters == 32 ? 8 : 4;  // rows that share the decoded words
// Prefetch distances: in words of a row of weights, one line for each word that is multiplied; in outputs,
// for scales and biases.
constexpr int64_t kSkinnyPrefetchWords = 64, kSkinnyPrefetchOutputs = 64;
constexpr int kPartialSums = 2;  // independent sums for each row and output

// Packed x: batches of kSkinnyBatch rows, the last of kSkinnyBatch / 2 if it has no more. A batch is
// [word][operand][row], then the sums over quantization groups, [group][row]. Rows beyond the last are zero.
template <class Codec>
struct SkinnyPacking {
  int64_t rows, words, groups;

  explicit SkinnyPacking(const QuantizedTask& task)
      : rows(task.rows),
        words(task.num_groups * task.group_size * Codec::kBits / 32),
        groups(task.num_groups) {}

  // Rows of the batch that begins with row m.
  int64_t batch_rows(int64_t m) const {
    return rows - m > kSkinnyBatch / 2 ? kSkinnyBatch : kSkinnyBatch / 2;
  }
  int64_t sums(int64_t batch_rows) const { return words * Codec::kOperands * batch_rows; }
  int64_t batch_floats(int64_t batch_rows) const { return sums(batch_rows) + groups * batch_rows; }

  size_t floats() const {
    size_t all = 0;
    for (int64_t m = 0; m < rows; m += kSkinnyBatch) all += batch_floats(batch_rows(m));
    return all;
  }
};

// Packs the quantization groups from `begin` to `end`.
template <class Codec, Element kElement>
static void pack_skinny_quantized(const TaskWithOutliers& task, float* packed, int64_t begin, int64_t end) {
  const SkinnyPacking<Codec> layout(task);
  constexpr int kQuantsPerWord = 32 / Codec::kBits;
  const int64_t group_operands = task.group_size / kQuantsPerWord * Codec::kOperands;
  int64_t batch = 0;
  for (int64_t first = 0; first < task.rows; first += kSkinnyBatch, packed += layout.batch_floats(batch)) {
    batch = layout.batch_rows(first);
    const int64_t rows = task.rows - first < batch ? task.rows - first : batch;
    float* const operands = packed + begin * group_operands * batch;
    float* const all_sums = packed + layout.sums(batch);
    if (rows < batch) {
      memset(operands, 0, (end - begin) * group_operands * batch * sizeof(float));
      memset(all_sums + begin * batch, 0, (end - begin) * batch * sizeof(float));
    }
    for (int64_t m = 0; m < rows; m++) {
      auto* x = task.row_to_pack<kElement>(first + m) + begin * task.group_size;
      float* out = operands + m;
      for (int64_t g = begin; g < end; g++, x += task.group_size) {
        float x_f32[128];
        float sums[kLanes], sum = 0;
        store(sums, convert_group<Codec, kElement>(x, task.group_size, x_f32));
        for (float some : sums) sum += some;
        all_sums[g * batch + m] = sum;
        for (int e = 0; e < task.group_size; e += kQuantsPerWord)
          for (int operand = 0; operand < Codec::kOperands; operand++, out += batch)
            *out = Codec::pack_operand(x_f32 + e, operand);
      }
    }
  }
}

// dot[row][sum] += a word of kLanes outputs times its operands of x.
template <class Codec, int kIndex, int kRows>
VEC_FN void dot_word(W word, const float* x, F (*dot)[kPartialSums]) {
  if constexpr (kIndex < Codec::kDecoded) {
    const F decoded = Codec::template decode<kIndex>(word);
    const float* operand = x + Codec::operand_of(kIndex) * kRows;
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
      dot[m][kIndex % kPartialSums] =
          Codec::Mac::mac_broadcast(operand + m, decoded, dot[m][kIndex % kPartialSums]);
    dot_word<Codec, kIndex + 1, kRows>(word, x, dot);
  }
}

// kLanes outputs of a batch of kRows rows.
template <class Codec, Element kElement, int kRows>
struct SkinnySums {
  typedef StorageOf<kElement> T;

  LaneRows<uint32_t> words;
  LaneRows<T> scales, biases;
  TransposedScales<Codec::kBits, kElement> factors;
  float transposed[kLanes * kLanes];
  F acc[kRows];

  // The outputs from n on.
  SkinnySums(const QuantizedTask& task, int64_t n)
      : words(task.w + n * task.w_row_stride, task.w_row_stride, task.outputs - n,
              task.num_groups * task.group_size * Codec::kBits / 32),
        scales((const T*)task.scales + n * task.scales_row_stride, task.scales_row_stride, task.outputs - n,
               task.num_groups),
        biases((const T*)task.biases + n * task.biases_row_stride, task.biases_row_stride, task.outputs - n,
               task.num_groups) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++) acc[m] = zero();
  }

  // `next`: distance from the rows of weights of this block to those of the next, in words.
  VEC_FN void run(SkinnySums& sums, int group_words, int64_t next, const float* x, const float* x_sums) {
    const int64_t length = sums.words.length;
    const int part = group_words < kLanes ? group_words : kLanes;  // words of one group, transposed together
    for (int64_t word = 0; word < length; word += kLanes) {
      transpose_words(sums.words, word, sums.transposed);
      const int64_t left = length - word;
      const int64_t prefetched =
          left > kSkinnyPrefetchWords ? word + kSkinnyPrefetchWords : next + kSkinnyPrefetchWords - left;
      const int count = left < kLanes ? (int)left : kLanes;
      for (int begin = 0; begin < count; begin += part) {
        const int64_t group = (word + begin) / group_words;
        if ((word + begin) % group_words == 0) {
          if (group % kLanes == 0) sums.factors.read(sums.scales, sums.biases, group);
          add_biases(sums, group, x_sums + group * kRows);
        }
        multiply(sums, group, begin, part, prefetched, x + (word + begin) * Codec::kOperands * kRows);
      }
    }
  }

 private:
  // The biases of a quantization group times the sums of x over it.
  VEC_FN void add_biases(SkinnySums& sums, int64_t group, const float* x_sums) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
      sums.acc[m] = fma(sums.factors.bias[group % kLanes], set1(x_sums[m]), sums.acc[m]);
  }

  // `count` transposed words of a quantization group, from `begin` on. With each, a line is prefetched.
  VEC_FN void multiply(SkinnySums& sums, int64_t group, int begin, int count, int64_t prefetched,
                       const float* x) {
    F dot[kRows][kPartialSums];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
#pragma GCC unroll 2
      for (int s = 0; s < kPartialSums; s++) dot[m][s] = zero();
    for (int word = begin; word < begin + count; word++, x += Codec::kOperands * kRows) {
      prefetch_l1(sums.words.row[word] + prefetched);
      dot_word<Codec, 0, kRows>(Codec::load(sums.transposed + word * kLanes), x, dot);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
      sums.acc[m] = fma(add(dot[m][0], dot[m][1]), sums.factors.scale[group % kLanes], sums.acc[m]);
  }
};

// kLanes outputs from n on, of the batch whose first row is m.
template <class Codec, Element kElement, int kRows>
static void skinny_outputs(const TaskWithOutliers& task, const SkinnyPacking<Codec>& layout, const float* x,
                           int64_t m, int64_t n) {
  const int64_t next = kLanes * task.w_row_stride;  // may belong to another task, or lie beyond the end
  SkinnySums<Codec, kElement, kRows> sums(task, n);
  sums.run(sums, task.group_size * Codec::kBits / 32, next, x, x + layout.sums(kRows));
#pragma GCC unroll 8
  for (int i = 0; i < kRows; i++)
    if (m + i < task.rows) store_outputs<kElement>(task, m + i, n, sums.acc[i]);
}

template <class Codec, Element kElement>
static void skinny_quantized(const TaskWithOutliers& task, const float* packed) {
  typedef StorageOf<kElement> T;
  const SkinnyPacking<Codec> layout(task);
  for (int64_t n = 0; n < task.outputs; n += kLanes) {
    for (int64_t i = n + kSkinnyPrefetchOutputs; i < n + kSkinnyPrefetchOutputs + kLanes; i++) {
      prefetch_l1((const T*)task.scales + i * task.scales_row_stride);
      prefetch_l1((const T*)task.biases + i * task.biases_row_stride);
    }
    const float* x = packed;
    for (int64_t m = 0; m < task.rows; m += kSkinnyBatch) {
      const int64_t batch = layout.batch_rows(m);
      if (batch == kSkinnyBatch)
        skinny_outputs<Codec, kElement, kSkinnyBatch>(task, layout, x, m, n);
      else
        skinny_outputs<Codec, kElement, kSkinnyBatch / 2>(task, layout, x, m, n);
      x += layout.batch_floats(batch);
    }
  }
}

template <class Codec, Element kElement>
struct Skinny {
  static constexpr int kMaxRows = 1 << 30;  // any number, in batches

  static size_t packed_bytes(const QuantizedTask& task) {
    return SkinnyPacking<Codec>(task).floats() * sizeof(float);
  }
  static void prepare_row(const QuantizedTask&, void*, int64_t) {}
  static int64_t pack_parts(const QuantizedTask& task) { return task.num_groups; }
  static void pack(const TaskWithOutliers& task, void* packed, int64_t begin, int64_t end) {
    pack_skinny_quantized<Codec, kElement>(task, (float*)packed, begin, end);
  }
  static void run(const TaskWithOutliers& task, const void* packed) {
    skinny_quantized<Codec, kElement>(task, (const float*)packed);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
