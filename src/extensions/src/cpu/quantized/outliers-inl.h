// Outlier channels: elements larger than kOutlier times the robust mean of their row (the idea of LLM.int8),
// for GEMV and skinny paths. zero_outliers() sets them to 0 before packing; the epilogue, store_outputs(),
// adds x[k] * w[k] in float32. In a row with more than max_outliers(K) only infinities are outliers. So
// packed rows hold no infinity and no NaN.
//
// Why: these paths sum a quantization group before the scale, with a rounding error relative to the largest
// |x| of the group. Where the weights of that element are zero, its rounding error can exceed the rest of the
// result. An outlier costs as much as some hundred other elements (benches/LOG.md), hence the maximum. The
// outliers of a row, and so its bits, depend on no other row.
#pragma once

#include "cpu/interface/quantized_kernels.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kOutlier = 256;
constexpr int32_t kNanRow = -1;  // as the only index of a row: its results are NaN

inline int64_t max_outliers(int64_t K) { return K < 256 ? 4 : K < 4096 ? K / 64 : 64; }

// A task of a GEMV or skinny path with the outliers of its rows. Memory: their numbers, their indices, then
// copies of the rows that have any, with zeros instead of them.
struct TaskWithOutliers : QuantizedTask {
  void* memory;

  template <Element kElement>
  static size_t bytes(const QuantizedTask& task) {
    const int64_t K = task.num_groups * task.group_size;
    return task.rows * ((1 + max_outliers(K)) * sizeof(int32_t) + K * sizeof(StorageOf<kElement>));
  }

  int64_t K() const { return num_groups * group_size; }
  int32_t* counts() const { return (int32_t*)memory; }
  int32_t* indices(int64_t m) const { return counts() + rows + m * max_outliers(K()); }
  template <Element kElement>
  StorageOf<kElement>* zeroed_row(int64_t m) const {
    return (StorageOf<kElement>*)indices(rows) + m * K();
  }
  template <Element kElement>
  const StorageOf<kElement>* row(int64_t m) const {
    return (const StorageOf<kElement>*)x + m * x_row_stride;
  }
  template <Element kElement>
  const StorageOf<kElement>* row_to_pack(int64_t m) const {
    return counts()[m] > 0 ? zeroed_row<kElement>(m) : row<kElement>(m);
  }
};

// kOutlier times the robust mean of a row: means of |x| over 16 interleaved columns by up to 8 ranges of at
// least 64 elements; the minimum over ranges, then the lower quartile over columns. Means of zero are
// skipped.
template <Element kElement>
static float outlier_limit(const StorageOf<kElement>* x, int64_t K) {
  constexpr int kColumns = 16, kVectors = kColumns / kLanes;
  constexpr int64_t kMaxRanges = 8, kMinSteps = 4;
  const int64_t steps = K / kColumns, whole = steps / kMinSteps;
  const int64_t ranges = whole < 1 ? 1 : whole < kMaxRanges ? whole : kMaxRanges;
  F smallest[kVectors];
  for (int v = 0; v < kVectors; v++) smallest[v] = set1(kMaxFloat);
  for (int64_t range = 0; range < ranges; range++) {
    const int64_t begin = steps * range / ranges, end = steps * (range + 1) / ranges;
    const F share = set1(kOutlier / (float)(end - begin));
    F limits[kVectors];
    for (int v = 0; v < kVectors; v++) limits[v] = zero();
    for (int64_t step = begin; step < end; step++)
      for (int v = 0; v < kVectors; v++) {
        const F sizes = abs(load_as<kElement>(x + step * kColumns + v * kLanes));
        limits[v] = fma(sizes, share, limits[v]);
      }
    for (int v = 0; v < kVectors; v++) {  // a NaN is not smaller
      const F smaller = select(less_equal(limits[v], smallest[v]), limits[v], smallest[v]);
      smallest[v] = select(equal(limits[v], zero()), smallest[v], smaller);
    }
  }
  float limits[kColumns];
  for (int v = 0; v < kVectors; v++) store(limits + v * kLanes, smallest[v]);
  int count = 0;  // sorted so far
  for (int i = 0; i < kColumns; i++) {
    const float limit = limits[i];
    if (limit == kMaxFloat) continue;
    int at = count++;
    for (; at > 0 && limits[at - 1] > limit; at--) limits[at] = limits[at - 1];
    limits[at] = limit;
  }
  return count == 0 ? kMaxFloat : limits[count / 4];
}

// Writes the indices of elements larger than the limit and returns their number, or `capacity` + 1 if there
// are more or one of them is NaN.
template <Element kElement>
static int64_t list_larger(float limit, const StorageOf<kElement>* x, int64_t K, int64_t capacity,
                           int32_t* indices) {
  int64_t count = 0;
  for (int64_t k = 0; k < K; k += kLanes) {
    const F sizes = abs(load_as<kElement>(x + k));
    if (all(less_equal(sizes, set1(limit)))) continue;
    float size[kLanes];
    store(size, sizes);
    for (int lane = 0; lane < kLanes; lane++) {
      if (size[lane] <= limit) continue;
      if (count == capacity || size[lane] != size[lane]) return capacity + 1;
      indices[count++] = (int32_t)(k + lane);
    }
  }
  return count;
}

// Writes the indices of the outliers of a row and returns their number. If there are too many, only
// infinities are outliers.
template <Element kElement>
static int64_t list_outliers(const StorageOf<kElement>* x, int64_t K, int32_t* indices) {
  const int64_t capacity = max_outliers(K);
  int64_t count = list_larger<kElement>(outlier_limit<kElement>(x, K), x, K, capacity, indices);
  if (count > capacity) count = list_larger<kElement>(kMaxFloat, x, K, capacity, indices);
  if (count <= capacity) return count;
  indices[0] = kNanRow;
  return 1;
}

// Lists the outliers of row m. If there are any, it is copied with zeros instead of them, for packing.
template <Element kElement>
static void zero_outliers(const TaskWithOutliers& task, int64_t m) {
  int32_t* const indices = task.indices(m);
  const int64_t K = task.K(), count = list_outliers<kElement>(task.row<kElement>(m), K, indices);
  task.counts()[m] = (int32_t)count;
  if (count == 0) return;
  auto* const row = task.zeroed_row<kElement>(m);
  memcpy(row, task.row<kElement>(m), K * sizeof *row);
  for (int64_t i = 0; i < count; i++) {
    if (indices[i] == kNanRow)
      memset(row, 0, K * sizeof *row);
    else
      row[indices[i]] = 0;
  }
}

// Adds the products of row m's outliers to y, kLanes outputs from n on.
template <Element kElement>
static __attribute__((noinline)) F add_outliers(const TaskWithOutliers& task, int64_t m, int64_t n, F y) {
  typedef StorageOf<kElement> T;
  const T* const x = task.row<kElement>(m);
  const int32_t* const indices = task.indices(m);
  const int64_t left = task.outputs - n, count = left < kLanes ? left : kLanes;
  const uint32_t mask = (1u << task.bits) - 1;
  const int32_t group_size = task.group_size, quants_per_word = 32 / task.bits;
  for (int64_t i = 0; i < task.counts()[m]; i++) {
    const int32_t k = indices[i];
    if (k == kNanRow) return set1(__builtin_nanf(""));
    const uint32_t* word = task.w + n * task.w_row_stride + k / quants_per_word;
    const T* scale = (const T*)task.scales + n * task.scales_row_stride + k / group_size;
    const T* bias = (const T*)task.biases + n * task.biases_row_stride + k / group_size;
    const int shift = k % quants_per_word * task.bits;
    float quants[kLanes] = {};
    T scales[kLanes] = {}, biases[kLanes] = {};
    for (int64_t lane = 0; lane < count; lane++) {
      quants[lane] = (float)(*word >> shift & mask);
      scales[lane] = *scale;
      biases[lane] = *bias;
      word += task.w_row_stride;
      scale += task.scales_row_stride;
      bias += task.biases_row_stride;
    }
    const F weights = fma(load(quants), load_as<kElement>(scales), load_as<kElement>(biases));
    y = fma(weights, fill_from<kElement>(x + k), y);
  }
  return y;
}

// The end of the epilogue of row m and kLanes outputs from n on: outliers, then the store.
template <Element kElement>
VEC_FN void store_outputs(const TaskWithOutliers& task, int64_t m, int64_t n, F y) {
  if (task.counts()[m] > 0) y = add_outliers<kElement>(task, m, n, y);
  store_some<kElement>((StorageOf<kElement>*)task.y + m * task.y_row_stride + n, y, task.outputs - n);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
