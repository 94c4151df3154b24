// Few rows times quantized weights: the weights stream by once, and memory should set the pace.
//
// The lanes run along K. A word of packed weights is widened where it stands: unit u of a vector of words
// holds number u of every word, the factor of element u of every word's share of x. So x is laid out that way
// first, once a call, and the weights are never shuffled.
//
// A weight is scale * q + bias = scale * (q - half) + (bias + half * scale) with half = 2^(bits - 1): a
// scaled sum of products with small integers, and one product of a bias with the sum of x over its group. The
// order of the operations does not depend on the number of rows, nor do the bits of a row.
#pragma once

#include "cpu/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Products in float32.
template <int kBits_>
struct WideStream {
  static constexpr int kBits = kBits_;
  static constexpr int kUnits = 32 / kBits;    // vectors of x beside a vector of words
  static constexpr int kFactors = 32 / kBits;  // vectors of numbers in a vector of words
  static constexpr int unit_of(int factor) { return factor; }

  // One lane of a unit, from a word's share of x.
  static float pack(const float* share, int unit) { return share[unit]; }

  VEC_FN W load(const uint32_t* p) { return load_words<kBits>(p); }
  template <int kFactor>
  VEC_FN F factor(W words) {
    return number<kBits, kFactor>(words);
  }
  VEC_FN F mac(F a, F b, F c) { return fma(a, b, c); }
};

constexpr int kStreamedRows = 8;                       // at most
constexpr int kRowsAtOnce = kRegisters == 32 ? 8 : 4;  // that share a widened weight
constexpr size_t kStreamedBytes = 24 * 1024;           // of x, so that it stays in the first-level cache
constexpr int streamed_outputs(int rows) {             // weight rows at once, to hide latencies
  return kRegisters == 32 ? (rows <= 2 ? 4 : rows <= 4 ? 2 : 1) : (rows <= 2 ? 2 : 1);
}

// x of a call: [chunk of kLanes words][row][unit][lane], then the sum of every group, [row][group].
template <class Stream>
struct StreamedX {
  int64_t rows;  // 1, 2, 4 or 8; those that x lacks are zero
  int64_t words, chunks, groups;

  explicit StreamedX(const QuantizedTask& task)
      : rows(1),
        words(task.groups * task.group * Stream::kBits / 32),
        chunks((words + kLanes - 1) / kLanes),
        groups(round_up(task.groups, kLanes)) {
    while (rows < task.rows) rows *= 2;
  }

  int64_t row_floats() const { return Stream::kUnits * kLanes; }
  int64_t chunk_floats() const { return rows * row_floats(); }
  size_t floats() const { return chunks * chunk_floats() + rows * groups; }
  template <class Float>
  Float* sums(Float* packed, int64_t row) const {
    return packed + chunks * chunk_floats() + row * groups;
  }
};

template <class Stream, Element kElement>
static void pack_streamed(const QuantizedTask& task, float* packed) {
  StreamedX<Stream> layout(task);
  for (size_t i = 0; i < layout.floats(); i++) packed[i] = 0;
  constexpr int kShare = 32 / Stream::kBits;
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    for (int64_t g = 0; g < task.groups; g++, x += task.group) {
      float wide[128], lanes[kLanes];
      F sum = zero();
      for (int e = 0; e < task.group; e += kLanes) {
        F part = load_as<kElement>(x + e);
        store(wide + e, part);
        sum = add(sum, part);
      }
      store(lanes, sum);
      float& total = layout.sums(packed, m)[g];
      for (int lane = 0; lane < kLanes; lane++) total += lanes[lane];
      for (int share = 0; share < task.group / kShare; share++) {
        int64_t word = g * (task.group / kShare) + share;
        float* out = packed + word / kLanes * layout.chunk_floats() + m * layout.row_floats() + word % kLanes;
        for (int unit = 0; unit < Stream::kUnits; unit++)
          out[unit * kLanes] = Stream::pack(wide + share * kShare, unit);
      }
    }
  }
}

// Some weight rows of a task, with all scales widened: [output][group].
struct StreamedWeights {
  const uint32_t* words;
  int64_t stride, count;  // words of a row
  const float* scales;
  int64_t scales_stride;
  int chunks_per_group;  // where a group is at least a chunk
};

template <class Stream, int kFactor, int NR, int MR>
VEC_FN void multiply_words(const W* words, const float* x, F (*dot)[MR]) {
  if constexpr (kFactor < Stream::kFactors) {
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      F factor = Stream::template factor<kFactor>(words[i]);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++) {
        F unit = load(x + (m * Stream::kUnits + Stream::unit_of(kFactor)) * kLanes);
        dot[i][m] = Stream::mac(factor, unit, dot[i][m]);
      }
    }
    multiply_words<Stream, kFactor + 1, NR, MR>(words, x, dot);
  }
}

// Words from p on, of which `count` exist; x is 0 where the others would stand.
template <class Stream>
VEC_FN W load_some_words(const uint32_t* p, int64_t count) {
  if (count >= kLanes) return Stream::load(p);
  uint32_t part[kLanes] = {};
  memcpy(part, p, count * sizeof(*p));
  return Stream::load(part);
}

// sums[output][row][lane] += the products of NR weight rows, beginning at n, with MR rows of x, over some
// chunks. G groups share a chunk; 0: a group is longer. Weight rows beyond the last are the last again.
template <class Stream, int G, int NR, int MR>
static void stream_block(const StreamedWeights& w, int64_t n, int64_t outputs, const float* x,
                         int64_t x_stride, int64_t begin, int64_t end, float* sums, int64_t sums_stride) {
  const uint32_t* row[NR];
  const float* scales[NR];
  F acc[NR][MR];
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++) {
    int64_t output = n + i < outputs ? n + i : outputs - 1;
    row[i] = w.words + output * w.stride;
    scales[i] = w.scales + output * w.scales_stride;
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) acc[i][m] = load(sums + i * sums_stride + m * kLanes);
  }
  for (int64_t chunk = begin; chunk < end; chunk++) {
    W words[NR];
    F dot[NR][MR];
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      const uint32_t* p = row[i] + chunk * kLanes;
      __builtin_prefetch(p + NR * w.stride);
      words[i] = load_some_words<Stream>(p, w.count - chunk * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++) dot[i][m] = zero();
    }
    multiply_words<Stream, 0, NR, MR>(words, x + chunk * x_stride, dot);
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      F scale;
      if constexpr (G > 0)
        scale = stretch<G>(scales[i] + chunk * G);
      else
        scale = set1(scales[i][chunk / w.chunks_per_group]);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++) acc[i][m] = fma(dot[i][m], scale, acc[i][m]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) store(sums + i * sums_stride + m * kLanes, acc[i][m]);
}

template <class Stream, int G, int MR>
static void stream_rows(const StreamedWeights& w, int64_t outputs, const float* x,
                        const StreamedX<Stream>& layout, float* sums) {
  constexpr int NR = streamed_outputs(MR);
  const int64_t sums_stride = layout.rows * kLanes;
  const int64_t step = MR == 1 ? layout.chunks : kStreamedBytes / (layout.chunk_floats() * sizeof(float));
  for (int64_t begin = 0; begin < layout.chunks; begin += step) {
    int64_t end = begin + step < layout.chunks ? begin + step : layout.chunks;
    for (int64_t n = 0; n < outputs; n += NR)
      for (int64_t m = 0; m < layout.rows; m += MR)
        stream_block<Stream, G, NR, MR>(w, n, outputs, x + m * layout.row_floats(), layout.chunk_floats(),
                                        begin, end, sums + n * sums_stride + m * kLanes, sums_stride);
  }
}

template <class Stream, int G>
static void stream_groups(const StreamedWeights& w, int64_t outputs, const float* x,
                          const StreamedX<Stream>& layout, float* sums) {
  switch (layout.rows) {
    case 1:
      return stream_rows<Stream, G, 1>(w, outputs, x, layout, sums);
    case 2:
      return stream_rows<Stream, G, 2>(w, outputs, x, layout, sums);
    case 4:
      return stream_rows<Stream, G, 4>(w, outputs, x, layout, sums);
    default:
      return stream_rows<Stream, G, kRowsAtOnce>(w, outputs, x, layout, sums);
  }
}

// Scratch of a task: [output][row][lane] sums and [output][group] scales, outputs rounded up to a whole
// block.
template <class Stream>
static size_t streamed_floats(const QuantizedTask& task, const StreamedX<Stream>& layout) {
  return round_up(task.outputs, kLanes) * (layout.rows * kLanes + layout.groups);
}

// Widens the scales, and begins the sums with the products of the biases.
template <class Stream, Element kElement>
static void begin_sums(const QuantizedTask& task, const StreamedX<Stream>& layout, const float* x,
                       float* sums, float* scales) {
  const F half = set1((float)(1 << (Stream::kBits - 1)));
  for (int64_t n = 0; n < task.outputs; n++, sums += layout.rows * kLanes, scales += layout.groups) {
    auto* scale = (const StorageOf<kElement>*)task.scales + n * task.scales_row_stride;
    auto* bias = (const StorageOf<kElement>*)task.biases + n * task.biases_row_stride;
    for (int64_t m = 0; m < layout.rows; m++) store(sums + m * kLanes, zero());
    for (int64_t g = 0; g < task.groups; g += kLanes) {
      F s = load_some<kElement>(scale + g, task.groups - g);
      F b = fma(half, s, load_some<kElement>(bias + g, task.groups - g));
      store(scales + g, s);
      for (int64_t m = 0; m < layout.rows; m++)
        store(sums + m * kLanes, fma(b, load(layout.sums(x, m) + g), load(sums + m * kLanes)));
    }
  }
}

// y from the sums, kLanes outputs at a time: the sums of a block are added up across their lanes by
// transposing it.
template <Element kElement>
static void finish_sums(const QuantizedTask& task, const float* sums, int64_t stride) {
  for (int64_t m = 0; m < task.rows; m++) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = load(sums + (n + j) * stride + m * kLanes);
      transpose(block);
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) block[j] = add(block[j], block[j + half]);
      store_some<kElement>(y + n, block[0], task.outputs - n);
    }
  }
}

template <class Stream, Element kElement>
static void stream(const QuantizedTask& task, const float* x, float* sums) {
  StreamedX<Stream> layout(task);
  const int64_t sums_stride = layout.rows * kLanes;
  float* scales = sums + round_up(task.outputs, kLanes) * sums_stride;
  begin_sums<Stream, kElement>(task, layout, x, sums, scales);
  const int chunk = 32 / Stream::kBits * kLanes;
  const StreamedWeights w = {task.w, task.w_row_stride, layout.words,
                             scales, layout.groups,     task.group / chunk};
  switch (chunk / task.group) {
    case 0:
      stream_groups<Stream, 0>(w, task.outputs, x, layout, sums);
      break;
    case 1:
      stream_groups<Stream, 1>(w, task.outputs, x, layout, sums);
      break;
    case 2:
      if constexpr (chunk >= 64) stream_groups<Stream, 2>(w, task.outputs, x, layout, sums);
      break;
    case 4:
      if constexpr (chunk >= 128) stream_groups<Stream, 4>(w, task.outputs, x, layout, sums);
  }
  finish_sums<kElement>(task, sums, sums_stride);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
