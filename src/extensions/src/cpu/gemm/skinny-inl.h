// Skinny GEMM with dense weights, one row (GEMV) to a few: the weights are read once, at the speed of memory.
//
// The lanes run along K, as the weights lie in memory, and each sum is a vector of its own,
// [output][row][lane]. The order of additions, and so the bits of a row, do not depend on the number of rows.
#pragma once

#include "cpu/gemm/dense_weights-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMaxOutputsAtOnce = 8;
constexpr size_t kResidentBytes = 24 * 1024;  // of x: it stays in the first-level cache

// Prefetch of weights for one or two rows: the cache level, and the distance in steps. Which is faster
// depends on the processor (benches/LOG.md).
struct PrefetchL2 {
  static constexpr int64_t kSteps = 32;
  VEC_FN void line(const void* p) { prefetch_l2(p); }
};
struct PrefetchL1 {
  static constexpr int64_t kSteps = 16;
  VEC_FN void line(const void* p) { prefetch_l1(p); }
};

// Whether the skinny driver is faster than the blocked driver on AMX tiles.
VEC_FN bool is_skinny(int64_t rows) { return rows <= 8; }

// The same for the blocked driver in vectors, which computes whole vectors of 16 rows: with AVX-512 up to 12
// rows and 17 to 23 (benches/LOG.md).
VEC_FN bool is_skinny_in_vectors(int64_t rows) {
  return is_skinny(rows) || (kLanes == 16 && (rows <= 12 || (rows > 16 && rows < 24)));
}

template <class Arithmetic>
VEC_FN int64_t skinny_steps(const LinearTask& task) {
  return divide_up(task.K, kElementsOfVector<Arithmetic>);
}

// Packed x: [step][row][lane]; zeros beyond K.
template <class Arithmetic>
VEC_FN size_t skinny_x_floats(const LinearTask& task) {
  return skinny_steps<Arithmetic>(task) * task.rows * kLanes;
}

template <class Arithmetic, Element kElement>
static void pack_skinny_dense(const LinearTask& task, float* packed) {
  for (int64_t begin = 0; begin < task.K; begin += kElementsOfVector<Arithmetic>)
    for (int64_t m = 0; m < task.rows; m++, packed += kLanes) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + begin;
      store(packed, Arithmetic::template read<kElement>(x, task.K - begin));
    }
}

// Floats of the sums of a task, in whole blocks and whole vectors of outputs.
VEC_FN size_t skinny_sums_floats(const LinearTask& task) {
  return (round_up(task.outputs, kLanes) + kMaxOutputsAtOnce) * task.rows * kLanes;
}

// The steps [begin, end) of a product, with the sums of all outputs.
template <class Arithmetic, Element kElement, class Prefetch>
struct SkinnySteps {
  typedef StorageOf<kElement> T;
  static constexpr int kElements = kElementsOfVector<Arithmetic>;

  const DenseWeights<kElement>& weights;
  const float* x;
  int64_t begin, end;
  float* sums;

  // kOutputs by kRows, the fastest of those measured. 8 x 3 would need 33 registers.
  void run() const {
    const int64_t rows = weights.task.rows;
    if constexpr (kRegisters == 32) {
      if (rows <= 2) return run_outputs<8, 1, 2>();
      if (rows <= 4) return run_outputs<6, 3, 4>();
      if (rows == 7 || rows == 8) return run_outputs<3, 7, 8>();
      run_outputs<4, 4, 6>();
    } else {
      if (rows <= 2) return run_outputs<4, 1, 2>();
      run_outputs<3, 2, 4>();
    }
  }

 private:
  // Rows in equal batches of kMinRows to kMaxRows.
  template <int kOutputs, int kMinRows, int kMaxRows>
  void run_outputs() const {
    const LinearTask& task = weights.task;
    for (int64_t n = 0; n < task.outputs; n += kOutputs)
      for (int64_t m = 0, rows; m < task.rows; m += rows) {
        const int64_t left = task.rows - m, batches = (left + kMaxRows - 1) / kMaxRows;
        rows = (left + batches - 1) / batches;
        run_batch<kOutputs, kMinRows, kMaxRows>(rows, n, m);
      }
  }

  template <int kOutputs, int kMinRows, int kRows>
  void run_batch(int64_t rows, int64_t n, int64_t m) const {
    if (rows == kRows) return multiply<kOutputs, kRows>(n, m);
    if constexpr (kRows > kMinRows) run_batch<kOutputs, kMinRows, kRows - 1>(rows, n, m);
  }

  // Rows of weights beyond the last repeat it.
  template <int kOutputs, int kRows>
  void multiply(int64_t n, int64_t m) const {
    const LinearTask& task = weights.task;
    const int64_t step_floats = task.rows * kLanes;
    // A step prefetches weights `prefetch_steps` steps later in their rows; from `wrap_step` on, the begin of
    // the next kOutputs rows. With one or two rows of x the distance is short: kOutputs is so large that
    // whole rows would be evicted before they are read.
    const int64_t steps = end - begin;
    const int64_t prefetch_steps = task.rows <= 2 && steps > Prefetch::kSteps ? Prefetch::kSteps : steps;
    const int64_t wrap_step = end - prefetch_steps;
    const int64_t next_rows_distance = kOutputs * task.w_row_stride - (wrap_step - begin) * kElements;
    const float* x_of_step = x + begin * step_floats + m * kLanes;
    float* c = sums + n * step_floats + m * kLanes;
    const T* row[kOutputs];
    F acc[kOutputs][kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kOutputs; i++) {
      row[i] = weights.row(n + i < task.outputs ? n + i : task.outputs - 1);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) acc[i][r] = load(c + i * step_floats + r * kLanes);
    }
    auto multiply_step = [&](int64_t step, int64_t count, int64_t distance) __attribute__((always_inline)) {
      F weight[kOutputs];
#pragma GCC unroll 8
      for (int i = 0; i < kOutputs; i++) {
        const T* p = row[i] + step * kElements;
        if constexpr (kRows <= 2)
          Prefetch::line(p + distance);
        else
          prefetch_l2(p + distance);
        weight[i] = Arithmetic::template read<kElement>(p, count);
        if constexpr (kRows > 1) weight[i] = keep_in_register(weight[i]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) {
        const F x_of_row = keep_in_register(load(x_of_step + r * kLanes));
#pragma GCC unroll 8
        for (int i = 0; i < kOutputs; i++) acc[i][r] = Arithmetic::Mac::mac(weight[i], x_of_row, acc[i][r]);
      }
      x_of_step += step_floats;
    };
    const int64_t whole = task.K / kElements < end ? task.K / kElements : end;
    int64_t step = begin;
    if constexpr (kRows <= 2)
      for (; step < wrap_step; step++) multiply_step(step, kElements, prefetch_steps * kElements);
    for (; step < whole; step++) multiply_step(step, kElements, next_rows_distance);
    if (whole < end) multiply_step(whole, task.K - whole * kElements, next_rows_distance);
    // Without this GCC 12 keeps the address of every sum in a register, and reloads weights.
    __asm__("" : "+r"(c));
#pragma GCC unroll 8
    for (int i = 0; i < kOutputs; i++)
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) store(c + i * step_floats + r * kLanes, acc[i][r]);
  }
};

template <class Arithmetic, Element kElement, class Prefetch>
static void skinny_gemm(const LinearTask& task, const float* x, float* sums) {
  const DenseWeights<kElement> weights{task};
  const int64_t step_floats = task.rows * kLanes, steps = skinny_steps<Arithmetic>(task);
  for (int64_t n = 0; n < task.outputs; n++) {
    const float bias = weights.bias(n);
    for (int64_t m = 0; m < task.rows; m++)
      store(sums + n * step_floats + m * kLanes, load_some<Element::f32>(&bias, 1));
  }
  const int64_t chunk = task.rows == 1 ? steps : (int64_t)(kResidentBytes / (step_floats * sizeof(float)));
  for (int64_t begin = 0; begin < steps; begin += chunk) {
    const int64_t end = begin + chunk < steps ? begin + chunk : steps;
    SkinnySteps<Arithmetic, kElement, Prefetch>{weights, x, begin, end, sums}.run();
  }
  // Epilogue: the sums across the lanes of kLanes outputs at a time.
  for (int64_t m = 0; m < task.rows; m++, sums += kLanes) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes)
      store_some<kElement>(y + n, sum_lanes(sums + n * step_floats, step_floats), task.outputs - n);
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
