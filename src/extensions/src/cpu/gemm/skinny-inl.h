// Few rows times dense weights: the weights stream by once, and memory should set the pace.
//
// The lanes run along K, as the weights lie in memory, and every sum has a vector of its own,
// [output][row][lane]. The order of the additions does not depend on the number of rows, nor do the bits of a
// row.
#pragma once

#include "cpu/gemm/dense_weights-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMostOutputsAtOnce = 8;
constexpr size_t kStreamedBytes = 24 * 1024;  // of x, so that it stays in the first-level cache

// How the weights of one or two rows are asked for: so many steps ahead. Which is faster depends on the
// processor (benches/LOG.md).
struct FarAhead {
  static constexpr int64_t kSteps = 32;
  VEC_FN void ask(const void* p) { ask_for_line(p); }
};
struct NearAhead {
  static constexpr int64_t kSteps = 16;
  VEC_FN void ask(const void* p) { bring_line(p); }
};

// Whether so many rows stream.
VEC_FN bool streams(int64_t rows) { return rows <= 8; }

// Beside a form with the same instructions, which pays for whole vectors of rows, as was measured with
// AVX-512 (benches/LOG.md).
VEC_FN bool streams_beside_lanes(int64_t rows) {
  return streams(rows) || (kLanes == 16 && (rows <= 12 || (rows > 16 && rows < 24)));
}

template <class Product>
VEC_FN int64_t streamed_steps(const LinearTask& task) {
  return (task.K + kElementsOfVector<Product> - 1) / kElementsOfVector<Product>;
}

// x of a call: [step][row][lane]; zeros beyond K.
template <class Product>
VEC_FN size_t streamed_x_floats(const LinearTask& task) {
  return streamed_steps<Product>(task) * task.rows * kLanes;
}

template <class Product, Element kElement>
static void pack_streamed(const LinearTask& task, float* packed) {
  for (int64_t begin = 0; begin < task.K; begin += kElementsOfVector<Product>)
    for (int64_t m = 0; m < task.rows; m++, packed += kLanes) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + begin;
      store(packed, Product::template read<kElement>(x, task.K - begin));
    }
}

// Floats of a task's sums, with room for a whole block and a whole vector of outputs at the end.
VEC_FN size_t streamed_sums_floats(const LinearTask& task) {
  return (round_up(task.outputs, kLanes) + kMostOutputsAtOnce) * task.rows * kLanes;
}

// Some steps of a product, from `begin` on, with the sums of all outputs.
template <class Product, Element kElement, class Ahead>
struct StreamedSteps {
  typedef StorageOf<kElement> T;
  static constexpr int kElements = kElementsOfVector<Product>;

  const DenseWeights<kElement>& weights;
  const float* x;
  int64_t begin, end;
  float* sums;

  // All rows of x times some outputs at once: as many sums as was fastest. Eight outputs beside three rows
  // would need 33 registers.
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
  // NR outputs at a time times the rows, in batches as even as can be, of kFewest to kMost.
  template <int NR, int kFewest, int kMost>
  void run_outputs() const {
    const LinearTask& task = weights.task;
    for (int64_t n = 0; n < task.outputs; n += NR)
      for (int64_t m = 0, rows; m < task.rows; m += rows) {
        const int64_t left = task.rows - m, batches = (left + kMost - 1) / kMost;
        rows = (left + batches - 1) / batches;
        run_batch<NR, kFewest, kMost>(rows, n, m);
      }
  }

  template <int NR, int kFewest, int MR>
  void run_batch(int64_t rows, int64_t n, int64_t m) const {
    if (rows == MR) return multiply<NR, MR>(n, m);
    if constexpr (MR > kFewest) run_batch<NR, kFewest, MR - 1>(rows, n, m);
  }

  // Weight rows beyond the last are the last again.
  template <int NR, int MR>
  void multiply(int64_t n, int64_t m) const {
    const LinearTask& task = weights.task;
    const int64_t step_floats = task.rows * kLanes;
    // A step asks for weights that lie `ahead` steps further on in their rows; from the turn on, for those
    // with which the next rows begin. One or two rows of x take so many rows of weights at once that whole
    // ones would not stay in the first-level cache until their turn.
    const int64_t steps = end - begin;
    const int64_t ahead = task.rows <= 2 && steps > Ahead::kSteps ? Ahead::kSteps : steps;
    const int64_t turn = end - ahead;
    const int64_t next_rows = NR * task.w_row_stride - (turn - begin) * kElements;
    const float* x_of_step = x + begin * step_floats + m * kLanes;
    float* c = sums + n * step_floats + m * kLanes;
    const T* row[NR];
    F acc[NR][MR];
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++) {
      row[i] = weights.row(n + i < task.outputs ? n + i : task.outputs - 1);
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) acc[i][r] = load(c + i * step_floats + r * kLanes);
    }
    auto multiply_step = [&](int64_t step, int64_t count, int64_t asked) __attribute__((always_inline)) {
      F weight[NR];
#pragma GCC unroll 8
      for (int i = 0; i < NR; i++) {
        const T* p = row[i] + step * kElements;
        if constexpr (MR <= 2)
          Ahead::ask(p + asked);
        else
          ask_for_line(p + asked);
        weight[i] = Product::template read<kElement>(p, count);
        if constexpr (MR > 1) weight[i] = kept(weight[i]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) {
        const F x_of_row = kept(load(x_of_step + r * kLanes));
#pragma GCC unroll 8
        for (int i = 0; i < NR; i++) acc[i][r] = Product::Mac::mac(weight[i], x_of_row, acc[i][r]);
      }
      x_of_step += step_floats;
    };
    const int64_t whole = task.K / kElements < end ? task.K / kElements : end;
    int64_t step = begin;
    if constexpr (MR <= 2)
      for (; step < turn; step++) multiply_step(step, kElements, ahead * kElements);
    for (; step < whole; step++) multiply_step(step, kElements, next_rows);
    if (whole < end) multiply_step(whole, task.K - whole * kElements, next_rows);
    // Or else GCC 12 keeps every sum's place in a register, and for want of those reads weights again and
    // again.
    __asm__("" : "+r"(c));
#pragma GCC unroll 8
    for (int i = 0; i < NR; i++)
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) store(c + i * step_floats + r * kLanes, acc[i][r]);
  }
};

template <class Product, Element kElement, class Ahead>
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
    StreamedSteps<Product, kElement, Ahead>{weights, x, begin, end, sums}.run();
  }
  // The sums of kLanes outputs at a time.
  for (int64_t m = 0; m < task.rows; m++, sums += kLanes) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes)
      store_some<kElement>(y + n, sum_lanes(sums + n * step_floats, step_floats), task.outputs - n);
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
