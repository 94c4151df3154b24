// Outlier elements of x: the few that are far larger than the others of their row, for GEMV and skinny paths.
// These paths sum whole quantization groups before the scale, with a rounding error relative to the largest
// element of a group. Where the weights of that element are zero, only its rounding error would reach the
// result, and it can exceed everything else. So the paths get rows with zeros in place of outliers, and the
// epilogue adds the product of each outlier with its weights in float32. The paths see no infinities or NaN.
//
// An outlier costs as much as some hundred other elements (benches/LOG.md), so a row that would have too many
// has none. The outliers of a row, and so its bits, depend on no other row.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kOutlier = 256;  // an outlier is larger than kOutlier times the typical magnitude of its row
constexpr float FLT_MAX = 0x1.fffffep127f;
constexpr int32_t kNanRow = -1;  // in place of the only outlier of a row whose results are NaN

// At most so many in a row of K elements.
inline int64_t max_outliers(int64_t K) { return K < 256 ? 4 : K < 4096 ? K / 64 : 64; }

// A task of a GEMV or skinny path. The outliers of row m are the elements places[ends[m - 1]] to
// places[ends[m] - 1].
struct TaskWithOutliers : QuantizedTask {
  const int64_t* ends;
  const int32_t* places;

  int64_t begin(int64_t m) const { return m == 0 ? 0 : ends[m - 1]; }
};

// Memory: ends, places, then copies of the rows with zeros in place of outliers.
template <Element kElement>
struct OutlierLayout {
  typedef StorageOf<kElement> T;
  int64_t K, rows;

  explicit OutlierLayout(const QuantizedTask& task) : K(task.num_groups * task.group_size), rows(task.rows) {}

  size_t bytes() const {
    return rows * (sizeof(int64_t) + max_outliers(K) * sizeof(int32_t) + K * sizeof(T));
  }
  int64_t* ends(void* memory) const { return (int64_t*)memory; }
  int32_t* places(void* memory) const { return (int32_t*)(ends(memory) + rows); }
  T* zeroed_rows(void* memory) const { return (T*)(places(memory) + rows * max_outliers(K)); }
};

VEC_FN F abs(F x) { return max(x, sub(zero(), x)); }

// The magnitude above which an element is an outlier: kOutlier times a mean that a few large elements do not
// change, wherever they stand. The row is cut into up to eight ranges of at least 64 elements, and each range
// into 16 columns, every sixteenth element. Of the means of a column the smallest counts, of the 16 columns
// the lower quartile; means of zero do not count.
template <Element kElement>
static float outlier_limit(const StorageOf<kElement>* x, int64_t K) {
  constexpr int kColumns = 16, kVectors = kColumns / kLanes;
  constexpr int64_t kMaxRanges = 8, kMinSteps = 4;
  const int64_t steps = K / kColumns, whole = steps / kMinSteps;
  const int64_t ranges = whole < 1 ? 1 : whole < kMaxRanges ? whole : kMaxRanges;
  F smallest[kVectors];
  for (int v = 0; v < kVectors; v++) smallest[v] = set1(FLT_MAX);
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
    if (limit == FLT_MAX) continue;
    int at = count++;
    for (; at > 0 && limits[at - 1] > limit; at--) limits[at] = limits[at - 1];
    limits[at] = limit;
  }
  return count == 0 ? FLT_MAX : limits[count / 4];
}

// Writes the places of elements larger than the limit and returns their number, or `most` + 1 if there are
// more or one of them is NaN.
template <Element kElement>
static int64_t list_larger(float limit, const StorageOf<kElement>* x, int64_t K, int64_t most,
                           int32_t* places) {
  int64_t count = 0;
  for (int64_t k = 0; k < K; k += kLanes) {
    const F sizes = abs(load_as<kElement>(x + k));
    if (all(less_equal(sizes, set1(limit)))) continue;
    float size[kLanes];
    store(size, sizes);
    for (int lane = 0; lane < kLanes; lane++) {
      if (size[lane] <= limit) continue;
      if (count == most || size[lane] != size[lane]) return most + 1;
      places[count++] = (int32_t)(k + lane);
    }
  }
  return count;
}

// Writes the places of the outliers of a row and returns their number.
template <Element kElement>
static int64_t list_outliers(const StorageOf<kElement>* x, int64_t K, int32_t* places) {
  const int64_t most = max_outliers(K);
  int64_t count = list_larger<kElement>(outlier_limit<kElement>(x, K), x, K, most, places);
  if (count > most) count = list_larger<kElement>(FLT_MAX, x, K, most, places);
  if (count <= most) return count;
  places[0] = kNanRow;
  return 1;
}

// Writes down the outliers of the task's rows. Returns the task with zeros in their place, for packing.
template <Element kElement>
static QuantizedTask zero_outliers(QuantizedTask task, void* memory) {
  typedef StorageOf<kElement> T;
  const OutlierLayout<kElement> layout(task);
  const int64_t K = layout.K;
  int64_t *const ends = layout.ends(memory), count = 0;
  int32_t* const places = layout.places(memory);
  for (int64_t m = 0; m < task.rows; m++)
    ends[m] = count += list_outliers<kElement>((const T*)task.x + m * task.x_row_stride, K, places + count);
  if (count == 0) return task;
  T* const rows = layout.zeroed_rows(memory);
  for (int64_t m = 0, i = 0; m < task.rows; m++) {
    memcpy(rows + m * K, (const T*)task.x + m * task.x_row_stride, K * sizeof(T));
    for (; i < ends[m]; i++) {
      if (places[i] == kNanRow)
        memset(rows + m * K, 0, K * sizeof(T));
      else
        rows[m * K + places[i]] = 0;
    }
  }
  task.x = rows;
  task.x_row_stride = K;
  return task;
}

// Adds the products of row m's outliers to y, kLanes outputs from n on.
template <Element kElement>
static __attribute__((noinline)) F add_outliers(const TaskWithOutliers& task, int64_t m, int64_t n, F y) {
  typedef StorageOf<kElement> T;
  const T* const x = (const T*)task.x + m * task.x_row_stride;
  const int64_t left = task.outputs - n, count = left < kLanes ? left : kLanes;
  const uint32_t mask = (1u << task.bits) - 1;
  const int32_t group = task.group_size, quants_per_word = 32 / task.bits;
  for (int64_t i = task.begin(m); i < task.ends[m]; i++) {
    const int32_t k = task.places[i];
    if (k == kNanRow) return set1(__builtin_nanf(""));
    const uint32_t* word = task.w + n * task.w_row_stride + k / quants_per_word;
    const T* scale = (const T*)task.scales + n * task.scales_row_stride + k / group;
    const T* bias = (const T*)task.biases + n * task.biases_row_stride + k / group;
    const int shift = k % quants_per_word * task.bits;
    float numbers[kLanes] = {};
    T scales[kLanes] = {}, biases[kLanes] = {};
    for (int64_t lane = 0; lane < count; lane++) {
      numbers[lane] = (float)(*word >> shift & mask);
      scales[lane] = *scale;
      biases[lane] = *bias;
      word += task.w_row_stride;
      scale += task.scales_row_stride;
      bias += task.biases_row_stride;
    }
    const F weights = fma(load(numbers), load_as<kElement>(scales), load_as<kElement>(biases));
    y = fma(weights, fill_from<kElement>(x + k), y);
  }
  return y;
}

// The end of the epilogue of row m and kLanes outputs from n on: outliers, then the store.
template <Element kElement>
VEC_FN void store_outputs(const TaskWithOutliers& task, int64_t m, int64_t n, F y) {
  if (task.begin(m) < task.ends[m]) y = add_outliers<kElement>(task, m, n, y);
  store_some<kElement>((StorageOf<kElement>*)task.y + m * task.y_row_stride + n, y, task.outputs - n);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
