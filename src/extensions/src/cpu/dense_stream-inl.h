// Few rows times dense weights: the weights stream by once, and memory should set the pace.
//
// The lanes run along K, as the weights lie in memory, and every sum has a vector of its own,
// [output][row][lane]. The order of the additions does not depend on the number of rows, nor do the bits of a
// row.
#pragma once

#include "cpu/dense_weights-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kSumsInRegisters = kRegisters == 32 ? 24 : 12;
constexpr int kMostOutputsAtOnce = 8;
constexpr size_t kStreamedBytes = 24 * 1024;  // of x, so that it stays in the first-level cache

// Whether so many rows stream.
inline bool streams(int64_t rows) { return rows <= 8; }

// Beside a form that takes kLanes rows at a time with the same instructions: it is slower unless it fills
// them.
inline bool streams_beside_lanes(int64_t rows) {
  return streams(rows) || (kLanes == 16 && rows < 24 && rows % 16 > 0 && rows % 16 < 13);
}

// Weight rows at once, so that with as many rows of x as there are, or can be, sums fill the registers.
inline int outputs_at_once(int64_t rows) {
  if (kRegisters < 32) return rows <= 2 ? 4 : 3;
  return rows <= 2 ? kMostOutputsAtOnce : rows <= 4 ? 6 : rows == 7 || rows == 8 ? 3 : 4;
}

template <class Product>
constexpr int kElementsOfStep = kLanes * Product::kElementsPerStep;  // as many as a vector of weights holds

template <class Product>
VEC_FN int64_t streamed_steps(const LinearTask& task) {
  return (task.K + kElementsOfStep<Product> - 1) / kElementsOfStep<Product>;
}

// x of a call: [step][row][lane]; zeros beyond K.
template <class Product>
static size_t streamed_x_floats(const LinearTask& task) {
  return streamed_steps<Product>(task) * task.rows * kLanes;
}

template <class Product, Element kElement>
static void pack_streamed(const LinearTask& task, float* packed) {
  for (int64_t begin = 0; begin < task.K; begin += kElementsOfStep<Product>)
    for (int64_t m = 0; m < task.rows; m++, packed += kLanes) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + begin;
      store(packed, Product::template read<kElement>(x, task.K - begin));
    }
}

// Floats of a task's sums, with room for a whole block and a whole vector of outputs at the end.
static size_t streamed_sums_floats(const LinearTask& task) {
  return (round_up(task.outputs, kLanes) + kMostOutputsAtOnce) * task.rows * kLanes;
}

// Some steps of a product, from `begin` on, with the sums of all outputs.
template <class Product, Element kElement>
struct StreamedSteps {
  typedef StorageOf<kElement> T;
  static constexpr int kElements = kElementsOfStep<Product>;

  const DenseWeights<kElement>& weights;
  const float* x;
  int64_t begin, end;
  float* sums;

  // NR outputs at a time times all rows of x, in batches as even as can be.
  template <int NR>
  void run() const {
    constexpr int kMost = kSumsInRegisters / NR;
    const LinearTask& task = weights.task;
    for (int64_t n = 0; n < task.outputs; n += NR)
      for (int64_t m = 0, rows; m < task.rows; m += rows) {
        const int64_t left = task.rows - m, batches = (left + kMost - 1) / kMost;
        rows = (left + batches - 1) / batches;
        run_batch<NR, kMost>(rows, n, m);
      }
  }

 private:
  template <int NR, int MR>
  void run_batch(int64_t rows, int64_t n, int64_t m) const {
    if (rows == MR) return multiply<NR, MR>(n, m);
    if constexpr (MR > 1) run_batch<NR, MR - 1>(rows, n, m);
  }

  // Weight rows beyond the last are the last again.
  template <int NR, int MR>
  void multiply(int64_t n, int64_t m) const {
    const LinearTask& task = weights.task;
    const int64_t step_floats = task.rows * kLanes;
    const float* unit = x + begin * step_floats + m * kLanes;
    float* c = sums + n * step_floats + m * kLanes;
    const T* row[NR];
    F acc[NR][MR];
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      row[i] = weights.row(n + i < task.outputs ? n + i : task.outputs - 1);
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) acc[i][r] = load(c + i * step_floats + r * kLanes);
    }
    auto step = [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
      F weight[NR];
#pragma GCC unroll 8
      for (int i = 0; i < NR; i++) {
        const T* p = row[i] + begin;
        __builtin_prefetch(p + NR * task.w_row_stride);
        weight[i] = Product::template read<kElement>(p, count);
      }
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) {
        const F some = load(unit + r * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < NR; i++) acc[i][r] = Product::Mac::mac(weight[i], some, acc[i][r]);
      }
      unit += step_floats;
    };
    const int64_t whole = task.K / kElements < end ? task.K / kElements : end;
    for (int64_t s = begin; s < whole; s++) step(s * kElements, kElements);
    if (whole < end) step(whole * kElements, task.K - whole * kElements);
    // Or else GCC keeps every sum's place in a register, and for want of those reads weights again and again.
    __asm__("" : "+r"(c));
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) store(c + i * step_floats + r * kLanes, acc[i][r]);
  }
};

template <class Product, Element kElement>
static void stream_dense(const LinearTask& task, const float* x, float* sums) {
  const DenseWeights<kElement> weights{task};
  const int64_t step_floats = task.rows * kLanes, steps = streamed_steps<Product>(task);
  for (int64_t n = 0; n < task.outputs; n++) {
    const float bias = weights.bias(n);
    for (int64_t m = 0; m < task.rows; m++)
      store(sums + n * step_floats + m * kLanes, load_some<Element::f32>(&bias, 1));
  }
  const int64_t chunk = task.rows == 1 ? steps : (int64_t)(kStreamedBytes / (step_floats * sizeof(float)));
  for (int64_t begin = 0; begin < steps; begin += chunk) {
    const int64_t end = begin + chunk < steps ? begin + chunk : steps;
    const StreamedSteps<Product, kElement> some{weights, x, begin, end, sums};
    switch (outputs_at_once(task.rows)) {
      case 8:
        some.template run<8>();
        break;
      case 6:
        some.template run<6>();
        break;
      case 4:
        some.template run<4>();
        break;
      default:
        some.template run<3>();
    }
  }
  // The sums of kLanes outputs at a time.
  for (int64_t m = 0; m < task.rows; m++, sums += kLanes) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes)
      store_some<kElement>(y + n, sum_lanes(sums + n * step_floats, step_floats), task.outputs - n);
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
