// Few rows times dense weights: the weights stream by once, and memory should set the pace.
//
// The lanes run along K, as the weights lie in memory. A task's sums are [output][row][lane]; the order of
// the additions does not depend on the number of rows, nor do the bits of a row.
#pragma once

#include "cpu/dense_weights-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kStreamedRows = 8;                       // at most
constexpr int kRowsAtOnce = kRegisters == 32 ? 8 : 4;  // that share a widened weight
constexpr size_t kStreamedBytes = 24 * 1024;           // of x, so that it stays in the first-level cache

// y from the sums, kLanes outputs at a time: the sums of a block are added up across their lanes by
// transposing it.
template <Element kElement>
static void finish_sums(const ProductTask& task, const float* sums, int64_t stride) {
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

// x of a call: [step][row][lane], a step as many elements as a vector of weights holds; zeros beyond K.
template <class Product>
struct DenseX {
  static constexpr int kElementsOfStep = kLanes * Product::kElementsPerStep;

  int64_t rows;  // 1, 2, 4 or 8; those that x lacks are zero
  int64_t steps;

  explicit DenseX(const LinearTask& task) : rows(1), steps((task.K + kElementsOfStep - 1) / kElementsOfStep) {
    while (rows < task.rows) rows *= 2;
  }

  int64_t step_floats() const { return rows * kLanes; }
  size_t floats() const { return steps * step_floats(); }
};

template <class Product, Element kElement>
static void pack_dense(const LinearTask& task, float* packed) {
  const DenseX<Product> layout(task);
  for (int64_t step = 0; step < layout.steps; step++)
    for (int64_t m = 0; m < layout.rows; m++, packed += kLanes) {
      const int64_t begin = step * layout.kElementsOfStep;
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + begin;
      store(packed, m < task.rows ? Product::template read<kElement>(x, task.K - begin) : zero());
    }
}

constexpr int dense_outputs(int rows) {  // weight rows at once: as many sums as there are registers for
  return kRegisters == 32 ? (rows <= 2 ? 8 : 24 / rows) : (rows <= 2 ? 4 : 12 / rows);
}
constexpr int kMostDenseOutputs = 8;

// sums[output][row][lane] += the products of NR weight rows, beginning at n, with MR rows of x, over some
// steps. Weight rows beyond the last are the last again.
template <class Product, Element kElement, int NR, int MR>
static void dense_block(const DenseWeights<kElement>& weights, int64_t n, const float* x, int64_t x_stride,
                        int64_t begin, int64_t end, float* sums, int64_t sums_stride) {
  constexpr int kElements = DenseX<Product>::kElementsOfStep;
  const LinearTask& task = weights.task;
  const StorageOf<kElement>* row[NR];
  F acc[NR][MR];
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++) {
    row[i] = weights.row(n + i < task.outputs ? n + i : task.outputs - 1);
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) acc[i][m] = load(sums + i * sums_stride + m * kLanes);
  }
  auto multiply = [&](int64_t step, int64_t count) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      const StorageOf<kElement>* p = row[i] + step * kElements;
      __builtin_prefetch(p + NR * task.w_row_stride);
      const F w = Product::template read<kElement>(p, count);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++)
        acc[i][m] = Product::Mac::mac(w, load(x + step * x_stride + m * kLanes), acc[i][m]);
    }
  };
  const int64_t whole = task.K / kElements < end ? task.K / kElements : end;
  for (int64_t step = begin; step < whole; step++) multiply(step, kElements);
  if (whole < end) multiply(whole, task.K - whole * kElements);
#pragma GCC unroll 8
  for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) store(sums + i * sums_stride + m * kLanes, acc[i][m]);
}

template <class Product, Element kElement, int MR>
static void dense_rows(const DenseWeights<kElement>& weights, const float* x, const DenseX<Product>& layout,
                       float* sums) {
  constexpr int NR = dense_outputs(MR);
  const int64_t sums_stride = layout.rows * kLanes;
  const int64_t chunk =
      MR == 1 ? layout.steps : (int64_t)(kStreamedBytes / (layout.step_floats() * sizeof(float)));
  for (int64_t begin = 0; begin < layout.steps; begin += chunk) {
    const int64_t end = begin + chunk < layout.steps ? begin + chunk : layout.steps;
    for (int64_t n = 0; n < weights.task.outputs; n += NR)
      for (int64_t m = 0; m < layout.rows; m += MR)
        dense_block<Product, kElement, NR, MR>(weights, n, x + m * kLanes, layout.step_floats(), begin, end,
                                               sums + n * sums_stride + m * kLanes, sums_stride);
  }
}

// Floats of a task's sums, with room for a whole block and a whole vector of outputs at the end.
template <class Product>
static size_t dense_floats(const LinearTask& task) {
  return (round_up(task.outputs, kLanes) + kMostDenseOutputs) * DenseX<Product>(task).step_floats();
}

template <class Product, Element kElement>
static void stream_dense(const LinearTask& task, const float* x, float* sums) {
  const DenseX<Product> layout(task);
  const DenseWeights<kElement> weights{task};
  const int64_t sums_stride = layout.rows * kLanes;
  for (int64_t n = 0; n < task.outputs; n++) {
    const float bias = weights.bias(n);
    for (int64_t m = 0; m < layout.rows; m++)
      store(sums + n * sums_stride + m * kLanes, load_some<Element::f32>(&bias, 1));
  }
  switch (layout.rows) {
    case 1:
      dense_rows<Product, kElement, 1>(weights, x, layout, sums);
      break;
    case 2:
      dense_rows<Product, kElement, 2>(weights, x, layout, sums);
      break;
    case 4:
      dense_rows<Product, kElement, 4>(weights, x, layout, sums);
      break;
    default:
      dense_rows<Product, kElement, kRowsAtOnce>(weights, x, layout, sums);
  }
  finish_sums<kElement>(product_of(task), sums, sums_stride);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
