// Products with quantized weights: y (M, N) = x (M, K) w^T, computed in float32.
//
// The lanes run along K, in which both operands are dense, so nothing is transposed; an element of y is
// kLanes partial sums until the end. Few rows leave the weights packed: each is unpacked in a register when
// it is used and read from memory once. For more rows a few weight rows at a time are unpacked into a tile
// that stays in the first-level cache. Either way an element sees the same operations in the same order, so
// its bits do not depend on how many rows there are.
#pragma once

#include "cpu/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kQuantizedRows = 64;
constexpr int kQuantizedOutputs = 48;
constexpr int kFewRows = 8;  // up to here unpacking again is cheaper than a tile
constexpr int kTileDepth = 512;
constexpr int kTileOutputs = kRegisters == 32 ? 6 : 2;
constexpr int kTileRows = 4;

// Rows of packed weights and what widens them. Indices count elements of a row.
template <int kBits>
struct PackedWeights {
  const uint8_t* rows;
  int64_t stride;                // bytes
  const float *scales, *biases;  // [outputs][groups]
  int64_t groups;

  VEC_FN F number(const uint8_t* p) {
    if constexpr (kBits == 4)
      return load_u4(p);
    else
      return load_u8(p);
  }

  struct Group {
    const uint8_t* p;
    F scale, bias;
    inline __attribute__((always_inline)) F at(int e) const {
      return fma(number(p + e * kBits / 8), scale, bias);
    }
  };
  inline __attribute__((always_inline)) Group group(int n, int64_t g, int size) const {
    return {rows + n * stride + g * size * kBits / 8, set1(scales[n * groups + g]),
            set1(biases[n * groups + g])};
  }
};

// The same already widened.
struct DenseWeights {
  const float* rows;
  int64_t stride;

  struct Group {
    const float* p;
    inline __attribute__((always_inline)) F at(int e) const { return load(p + e); }
  };
  inline __attribute__((always_inline)) Group group(int n, int64_t g, int size) const {
    return {rows + n * stride + g * size};
  }
};

// Partial sums, [output][row][kLanes], += NR rows of weights times MR rows of x, over `groups` groups.
template <class Weights, int NR, int MR>
static void multiply_block(const Weights& w, int n, const float* x, int64_t x_stride, int64_t groups,
                           int group, float* sums, int64_t output_stride) {
  F acc[NR][MR];
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) acc[i][m] = load(sums + i * output_stride + m * kLanes);
  for (int64_t g = 0; g < groups; g++) {
    typename Weights::Group rows[NR];
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) rows[i] = w.group(n + i, g, group);
    for (int e = 0; e < group; e += kLanes, x += kLanes) {
      F row[NR];
#pragma GCC unroll 8
      for (int i = 0; i < NR; i++) row[i] = rows[i].at(e);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++) {
        F factor = load(x + m * x_stride);
#pragma GCC unroll 8
        for (int i = 0; i < NR; i++) acc[i][m] = fma(row[i], factor, acc[i][m]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) store(sums + i * output_stride + m * kLanes, acc[i][m]);
}

// `outputs` weight rows in blocks of NR, and what is left one by one.
template <int NR, int MR, class Weights>
static void multiply_outputs(const Weights& w, int outputs, const float* x, int64_t x_stride, int64_t groups,
                             int group, float* sums, int64_t output_stride) {
  int n = 0;
  for (; n + NR <= outputs; n += NR)
    multiply_block<Weights, NR, MR>(w, n, x, x_stride, groups, group, sums + n * output_stride,
                                    output_stride);
  for (; n < outputs; n++)
    multiply_block<Weights, 1, MR>(w, n, x, x_stride, groups, group, sums + n * output_stride, output_stride);
}

// Outputs of a block on packed weights: enough independent sums to hide the latency of the multiply-add.
constexpr int packed_outputs(int MR) { return kRegisters == 32 ? (MR <= 4 ? 4 : 2) : (MR <= 2 ? 2 : 1); }

template <int kMost, int MR = 1, class Weights>
VEC_FN void multiply_rows(const Weights& w, int rows, int outputs, const float* x, int64_t x_stride,
                          int64_t groups, int group, float* sums, int64_t output_stride) {
  constexpr int NR = __is_same(Weights, DenseWeights) ? kTileOutputs : packed_outputs(MR);
  if (rows == MR)
    multiply_outputs<NR, MR>(w, outputs, x, x_stride, groups, group, sums, output_stride);
  else if constexpr (MR < kMost)
    multiply_rows<kMost, MR + 1>(w, rows, outputs, x, x_stride, groups, group, sums, output_stride);
}

// Rows as floats: in place where they are, else widened into `memory`, `stride` floats apart.
template <Element kElement>
static const float* widen_rows(const void* rows, int64_t& stride, int64_t count, int64_t begin, int64_t width,
                               float* memory) {
  auto* p = (const StorageOf<kElement>*)rows + begin;
  if constexpr (kElement == Element::f32) {
    return p;
  } else {
    int64_t padded = (width + kLanes - 1) / kLanes * kLanes;
    for (int64_t row = 0; row < count; row++, p += stride)
      for (int64_t e = 0; e < width; e += kLanes)
        store(memory + row * padded + e, load_some<kElement>(p + e, width - e));
    stride = padded;
    return memory;
  }
}

// How a task walks over K, and the scratch that takes.
struct QuantizedPlan {
  bool packed;  // the weights stay so
  int64_t step_groups, x_floats, sum_floats, tile_floats, factor_floats;

  explicit QuantizedPlan(const QuantizedTask& task)
      : packed(task.rows <= kFewRows), step_groups(packed ? task.groups : kTileDepth / task.group) {
    x_floats = task.rows * step_groups * task.group;
    sum_floats = task.outputs * task.rows * kLanes;
    tile_floats = packed ? 0 : kTileOutputs * kTileDepth;
    factor_floats = task.outputs * (step_groups + kLanes);
  }
  size_t bytes() const { return (x_floats + sum_floats + tile_floats + 2 * factor_floats) * sizeof(float); }
};

static size_t quantized_scratch_bytes(const QuantizedTask& task) { return QuantizedPlan(task).bytes(); }

// y from the partial sums, kLanes outputs at a time: the sums of a block are added up across their lanes by
// transposing it.
template <Element kElement>
static void finish_sums(const QuantizedTask& task, const float* sums) {
  for (int64_t m = 0; m < task.rows; m++) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++)
        block[j] = n + j < task.outputs ? load(sums + ((n + j) * task.rows + m) * kLanes) : zero();
      transpose(block);
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) block[j] = add(block[j], block[j + half]);
      store_some<kElement>(y + n, block[0], task.outputs - n);
    }
  }
}

// Scales and biases of the groups from `begin` on, as floats with one stride.
struct Factors {
  const float *scales, *biases;
  int64_t stride;
};

template <Element kElement>
static Factors widen_factors(const QuantizedTask& task, int64_t begin, int64_t groups, float* memory,
                             int64_t floats) {
  int64_t padded = (groups + kLanes - 1) / kLanes * kLanes;
  auto widen = [&](const void* rows, int64_t stride, float* out) {
    auto* p = (const StorageOf<kElement>*)rows + begin;
    for (int64_t n = 0; n < task.outputs; n++, p += stride)
      for (int64_t g = 0; g < groups; g += kLanes)
        store(out + n * padded + g, load_some<kElement>(p + g, groups - g));
  };
  widen(task.scales, task.scales_row_stride, memory);
  widen(task.biases, task.biases_row_stride, memory + floats);
  return {memory, memory + floats, padded};
}

template <int kBits>
static void unpack_tile(const PackedWeights<kBits>& w, int n, int outputs, int64_t groups, int group,
                        float* tile) {
  for (int i = 0; i < outputs; i++)
    for (int64_t g = 0; g < groups; g++) {
      auto from = w.group(n + i, g, group);
      for (int e = 0; e < group; e += kLanes) store(tile + i * kTileDepth + g * group + e, from.at(e));
    }
}

template <int kBits>
static void multiply_packed(const PackedWeights<kBits>& w, const QuantizedTask& task, const float* x,
                            int64_t x_stride, int64_t groups, float* sums) {
  multiply_rows<kFewRows>(w, (int)task.rows, (int)task.outputs, x, x_stride, groups, task.group, sums,
                          task.rows * kLanes);
}

template <int kBits>
static void multiply_tiled(const PackedWeights<kBits>& w, const QuantizedTask& task, const float* x,
                           int64_t x_stride, int64_t groups, float* sums, float* tile) {
  int64_t output_stride = task.rows * kLanes;
  for (int n = 0; n < task.outputs; n += kTileOutputs) {
    int outputs = task.outputs - n < kTileOutputs ? (int)task.outputs - n : kTileOutputs;
    unpack_tile(w, n, outputs, groups, task.group, tile);
    for (int64_t m = 0; m < task.rows; m += kTileRows) {
      int rows = task.rows - m < kTileRows ? (int)(task.rows - m) : kTileRows;
      multiply_rows<kTileRows>(DenseWeights{tile, kTileDepth}, rows, outputs, x + m * x_stride, x_stride,
                               groups, task.group, sums + n * output_stride + m * kLanes, output_stride);
    }
  }
}

template <Element kElement, int kBits>
static void quantized_product(const QuantizedTask& task, void* scratch) {
  const QuantizedPlan plan(task);
  float* sums = (float*)scratch;
  float* tile = sums + plan.sum_floats;
  float* wide_x = tile + plan.tile_floats;
  float* factors = wide_x + plan.x_floats;
  for (int64_t i = 0; i < plan.sum_floats; i++) sums[i] = 0;
  for (int64_t begin = 0; begin < task.groups; begin += plan.step_groups) {
    int64_t groups = task.groups - begin < plan.step_groups ? task.groups - begin : plan.step_groups;
    int64_t x_stride = task.x_row_stride;
    const float* x =
        widen_rows<kElement>(task.x, x_stride, task.rows, begin * task.group, groups * task.group, wide_x);
    Factors f = widen_factors<kElement>(task, begin, groups, factors, plan.factor_floats);
    PackedWeights<kBits> w = {(const uint8_t*)task.w + begin * task.group * kBits / 8, task.w_row_stride * 4,
                              f.scales, f.biases, f.stride};
    if (plan.packed)
      multiply_packed(w, task, x, x_stride, groups, sums);
    else
      multiply_tiled(w, task, x, x_stride, groups, sums, tile);
  }
  finish_sums<kElement>(task, sums);
}

template <Element kElement>
static void quantized_matmul(const QuantizedTask& task, void* scratch) {
  if (task.bits == 4)
    quantized_product<kElement, 4>(task, scratch);
  else
    quantized_product<kElement, 8>(task, scratch);
}

static void offer_quantized(Kernels& kernels) {
  kernels.quantized_matmul[(int)Element::f32] = quantized_matmul<Element::f32>;
  kernels.quantized_matmul[(int)Element::f16] = quantized_matmul<Element::f16>;
  kernels.quantized_matmul[(int)Element::bf16] = quantized_matmul<Element::bf16>;
  kernels.quantized_scratch_bytes = quantized_scratch_bytes;
  kernels.quantized_rows = kQuantizedRows;
  kernels.quantized_outputs = kQuantizedOutputs;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
