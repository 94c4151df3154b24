// GEMV: one or two rows of x times quantized weights, limited by memory. The lanes run along the words of a
// row of weights, in the order of memory; the epilogue adds the lanes of each output.
//
// x is packed as the operands of its codec, in the order of the words. Sums over a vector of words are
// multiplied by the scales of the quantization groups of its lanes; biases are multiplied by the sums of x
// over the groups. The bits of a row do not depend on the other row, nor those of an output on other outputs.
#pragma once

#include "cpu/quantized/codec/f32-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kGemvOutputs = kRegisters == 32 ? 4 : 2;  // that share each load of x
// Prefetch distances in words of a row of weights: to the second-level cache (for scales and biases, as many
// quantization groups), and to the first-level cache.
constexpr int64_t kGemvL2Words = 4096 / kGemvOutputs;
constexpr int64_t kGemvL1Words = 64;
constexpr int kMaxGroupWords = 32;  // 128 quants of 8 bits

// Packed x: [vector of words][operand][row][lane], then sums over groups, [vector of groups][row][lane].
// int8 digits: then the scales of groups, [vector of groups][row][lane], then one scale for each row, in all
// lanes; group scales and sums are relative to it. Beyond the end of x everything is zero.
template <class Codec>
struct GemvPacking {
  int64_t rows, words, groups, group_words;

  explicit GemvPacking(const QuantizedTask& task)
      : rows(task.rows < 2 ? 1 : 2),
        groups(task.num_groups),
        group_words(task.group_size * Codec::kBits / 32) {
    words = groups * group_words;
  }

  static int64_t vectors(int64_t count) { return (count + kLanes - 1) / kLanes; }
  int64_t sums() const { return vectors(words) * Codec::kOperands * rows * kLanes; }
  int64_t x_scales() const { return sums() + vectors(groups) * rows * kLanes; }
  int64_t row_scales() const { return x_scales() + vectors(groups) * rows * kLanes; }
  size_t floats() const { return Codec::kInt8 ? row_scales() + rows * kLanes : x_scales(); }
  // The lane of quantization group g and row m, in the sums or the scales.
  int64_t group_lane(int64_t g, int64_t m) const { return (g / kLanes * rows + m) * kLanes + g % kLanes; }
};

// Lane i: the sum of the lanes of vectors[i], from the first to the last.
VEC_FN F sum_in_order(F* vectors) {
  transpose(vectors);
  F sum = zero();
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; lane++) sum = add(sum, vectors[lane]);
  return sum;
}

template <class Codec, Element kElement>
static void pack_gemv(const TaskWithOutliers& task, float* packed) {
  const GemvPacking<Codec> layout(task);
  memset(packed, 0, layout.floats() * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = task.row_to_pack<kElement>(m);
    const int words = (int)layout.group_words;
    const int64_t stride = layout.rows * kLanes;
    for (int64_t first = 0; first < task.num_groups; first += kLanes) {
      F sums[kLanes];
      for (int i = 0; i < kLanes; i++, x += task.group_size) {
        const int64_t g = first + i;
        sums[i] = zero();
        if (g >= task.num_groups) continue;
        float x_f32[128];
        sums[i] = convert_group<Codec, kElement>(x, task.group_size, x_f32);
        const auto address_of = [&](int word_of_group) {
          const uint64_t word = (uint64_t)g * words + word_of_group;
          return packed + word / kLanes * Codec::kOperands * stride + m * kLanes + word % kLanes;
        };
        if constexpr (Codec::kInt8)
          packed[layout.x_scales() + layout.group_lane(g, m)] =
              Codec::write_group(x_f32, words, stride, address_of);
        else
          write_operands<Codec>(x_f32, words, stride, address_of);
      }
      store(packed + layout.sums() + layout.group_lane(first, m), sum_in_order(sums));
    }
    if constexpr (Codec::kInt8) {
      for (int64_t v = 0; v < layout.vectors(layout.words); v++)
        Codec::write_initial_sums(packed + (v * Codec::kOperands * layout.rows + m) * kLanes,
                                  layout.rows * kLanes);
      const F largest = Codec::normalise_scales(packed + layout.x_scales() + m * kLanes,
                                                packed + layout.sums() + m * kLanes,
                                                layout.vectors(layout.groups), layout.rows * kLanes);
      store(packed + layout.row_scales() + m * kLanes, largest);
    }
  }
}

// dot[output][row] += a vector of words times their operands of x.
template <class Codec, int kIndex, int kRows>
VEC_FN void dot_words(const W* words, const float* x, F (*dot)[kRows]) {
  if constexpr (Codec::kInt8) {
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
      for (int m = 0; m < kRows; m++) dot[i][m] = Codec::dot(words[i], x + m * kLanes, kRows * kLanes);
  } else if constexpr (kIndex < Codec::kDecoded) {
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++) {
      const F decoded = Codec::template decode<kIndex>(words[i]);
#pragma GCC unroll 2
      for (int m = 0; m < kRows; m++)
        dot[i][m] =
            Codec::Mac::mac(decoded, load(x + (Codec::operand_of(kIndex) * kRows + m) * kLanes), dot[i][m]);
    }
    dot_words<Codec, kIndex + 1, kRows>(words, x, dot);
  }
}

// The `count` words at p, then zeros.
template <class Codec>
VEC_FN W load_words_at(const uint32_t* p, int64_t count) {
  if (count >= kLanes) return Codec::load((const float*)p);
  uint32_t part[kLanes] = {};
  memcpy(part, p, count * sizeof *p);
  return Codec::load((const float*)part);
}

// The quantization group, modulo kLanes, of each word of kLanes groups: the lane of its scale.
struct GroupOfWord {
  int32_t group[kMaxGroupWords * kLanes];

  explicit GroupOfWord(int64_t group_words) {
    int32_t* of = group;
    for (int32_t g = 0; g < kLanes; g++)
      for (int64_t word = 0; word < group_words; word++) *of++ = g;
  }
};

// Sums before their lanes are added up: [block][row][output][lane], kLanes outputs a block.
template <int kRows>
struct GemvSums {
  static constexpr int64_t kRow = kLanes * kLanes, kBlock = kRows * kRow;
  alignas(64) float lanes[kGemvOutputs * kBlock];
};

// kGemvOutputs streams of outputs, each in order: stream i is at output first + i * stride, and `left`
// outputs remain in it. The next streams follow the last of these:
//   |-- stream 0 --|-- stream 1 --|-- stream 2 --|-- stream 3 --|-- stream 0 --|-- ...
struct OutputStreams {
  int64_t first, stride, left;

  // The distance from element `at` of an output to the element that is read `later` elements later.
  int64_t prefetch_offset(int64_t at, int64_t later, int64_t row_stride) const {
    return at + later < left * row_stride ? later : later + (kGemvOutputs - 1) * stride * row_stride;
  }
};

// Computes the sums of one output of each stream, which lie `sums_stride` floats from each other. Prefetch
// distances are chosen once for kLanes groups.
template <class Codec, Element kElement, int kRows>
VEC_FN void accumulate_outputs(const QuantizedTask& task, const GemvPacking<Codec>& layout,
                               const GroupOfWord& lanes, const float* x, const OutputStreams& outputs,
                               float* sums, int64_t sums_stride) {
  typedef StorageOf<kElement> T;
  const F offset = set1(Codec::kZeroPoint);
  const uint32_t* words[kGemvOutputs];
  const T *scales[kGemvOutputs], *biases[kGemvOutputs];
  F acc[kGemvOutputs][kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kGemvOutputs; i++) {
    const int64_t output = outputs.first + i * outputs.stride;
    const int64_t row = output < task.outputs ? output : task.outputs - 1;
    words[i] = task.w + row * task.w_row_stride;
    scales[i] = (const T*)task.scales + row * task.scales_row_stride;
    biases[i] = (const T*)task.biases + row * task.biases_row_stride;
#pragma GCC unroll 2
    for (int m = 0; m < kRows; m++) acc[i][m] = zero();
  }
  const int64_t l2_groups = kGemvL2Words / layout.group_words;
  const float *x_sums = x + layout.sums(), *x_scales = x + layout.x_scales();
  for (int64_t group = 0; group < layout.groups; group += kLanes) {
    const int64_t left = layout.groups - group;
    const int64_t next_scales = group + outputs.prefetch_offset(group, l2_groups, task.scales_row_stride);
    const int64_t next_biases = group + outputs.prefetch_offset(group, l2_groups, task.biases_row_stride);
    F scale[kGemvOutputs][kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kGemvOutputs; i++) {
      prefetch_l2(scales[i] + next_scales);
      prefetch_l2(biases[i] + next_biases);
      const F w_scale = load_some<kElement>(scales[i] + group, left);
      const F bias = fma(offset, w_scale, load_some<kElement>(biases[i] + group, left));
#pragma GCC unroll 2
      for (int m = 0; m < kRows; m++) {
        acc[i][m] = fma(bias, load(x_sums + (group * kRows + m * kLanes)), acc[i][m]);
        scale[i][m] = Codec::kInt8 ? mul(w_scale, load(x_scales + (group * kRows + m * kLanes))) : w_scale;
      }
    }
    const int64_t begin = group * layout.group_words;
    const int64_t end = left < kLanes ? layout.words : begin + kLanes * layout.group_words;
    const int64_t l2_distance = outputs.prefetch_offset(begin, kGemvL2Words, task.w_row_stride);
    const int32_t* lane = lanes.group;
    for (int64_t word = begin; word < end;
         word += kLanes, lane += kLanes, x += Codec::kOperands * kRows * kLanes) {
      W vector[kGemvOutputs];
      F dot[kGemvOutputs][kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kGemvOutputs; i++) {
        prefetch_l2(words[i] + word + l2_distance);
        prefetch_l1(words[i] + word + kGemvL1Words);
        vector[i] = load_words_at<Codec>(words[i] + word, end - word);
#pragma GCC unroll 2
        for (int m = 0; m < kRows; m++) dot[i][m] = zero();
      }
      dot_words<Codec, 0, kRows>(vector, x, dot);
#pragma GCC unroll 4
      for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
        for (int m = 0; m < kRows; m++) acc[i][m] = fma(dot[i][m], permute(scale[i][m], lane), acc[i][m]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kGemvOutputs; i++)
#pragma GCC unroll 2
    for (int m = 0; m < kRows; m++) store(sums + i * sums_stride + m * GemvSums<kRows>::kRow, acc[i][m]);
}

// Epilogue of a block of outputs from n on.
template <class Codec, Element kElement, int kRows>
static void store_block(const TaskWithOutliers& task, const GemvPacking<Codec>& layout, const float* x,
                        const float* sums, int64_t n) {
  for (int64_t m = 0; m < kRows; m++) {
    F y = sum_lanes(sums + m * GemvSums<kRows>::kRow, kLanes);
    if constexpr (Codec::kInt8) y = mul(y, load(x + layout.row_scales() + m * kLanes));
    store_outputs<kElement>(task, m, n, y);
  }
}

// kGemvOutputs streams of equal length keep more cache lines in flight than one (benches/LOG.md). The
// remaining outputs are computed in blocks of kLanes, from neighbouring outputs.
template <class Codec, Element kElement, int kRows>
static void gemv(const TaskWithOutliers& task, const float* x) {
  typedef GemvSums<kRows> Sums;
  const GemvPacking<Codec> layout(task);
  const GroupOfWord lanes(layout.group_words);
  Sums sums;
  const int64_t stream = task.outputs / kLanes / kGemvOutputs * kLanes;
  for (int64_t n = 0; n < stream; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i++)
      accumulate_outputs<Codec, kElement, kRows>(task, layout, lanes, x, {i, stream, stream - i},
                                                 sums.lanes + (i - n) * kLanes, Sums::kBlock);
    for (int i = 0; i < kGemvOutputs; i++)
      store_block<Codec, kElement, kRows>(task, layout, x, sums.lanes + i * Sums::kBlock, n + i * stream);
  }
  for (int64_t n = kGemvOutputs * stream; n < task.outputs; n += kLanes) {
    for (int64_t i = n; i < n + kLanes; i += kGemvOutputs)
      accumulate_outputs<Codec, kElement, kRows>(task, layout, lanes, x, {i, 1, 1},
                                                 sums.lanes + (i - n) * kLanes, kLanes);
    store_block<Codec, kElement, kRows>(task, layout, x, sums.lanes, n);
  }
}

template <class Codec, Element kElement>
struct Gemv {
  static constexpr int kMaxRows = 2;

  static size_t packed_bytes(const QuantizedTask& task) {
    return GemvPacking<Codec>(task).floats() * sizeof(float);
  }
  static void prepare_row(const QuantizedTask&, void*, int64_t) {}
  static int64_t pack_parts(const QuantizedTask&) {
    return 1;
  }  // scales of groups become relative at the end
  static void pack(const TaskWithOutliers& task, void* packed, int64_t, int64_t) {
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
