// A few elements of x that are far larger than the others of their row, where rows are few or are taken few
// at a time. The forms for few rows multiply by groups of weights and round in units of what is largest in a
// group. Where the weights of that are zero, it leaves nothing in the result but its rounding, which can be
// more than all else. So the forms get rows that have zeros in the places of such elements, and each of them
// is multiplied by itself, with its weights in float32. The forms see neither infinities nor NaN.
//
// Each of them takes as long as some hundred other elements (benches/LOG.md), so a row that would have many
// has none. A row's outliers, and with them its bits, depend on no other row.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kOutlier = 256;  // more than so many times the size that is usual in the row's small parts
constexpr float kMostFinite = 0x1.fffffep127f;
constexpr int32_t kNoNumber = -1;  // in the place of a row's only outlier: all that comes of the row is NaN

// Of a row of K, at most.
inline int64_t most_outliers(int64_t K) { return K < 256 ? 4 : K < 4096 ? K / 64 : 64; }

// A task of few rows, or of a piece of many. The outliers of row m stand at places[ends[m - 1]] to
// places[ends[m]].
struct FewTask : QuantizedTask {
  const int64_t* ends;
  const int32_t* places;

  int64_t begin(int64_t m) const { return m == 0 ? 0 : ends[m - 1]; }
};

// The memory for these, and for the rows without their outliers behind them.
template <Element kElement>
struct OutlierLayout {
  typedef StorageOf<kElement> T;
  int64_t K, rows;

  explicit OutlierLayout(const QuantizedTask& task) : K(task.groups * task.group), rows(task.rows) {}

  size_t bytes() const {
    return rows * (sizeof(int64_t) + most_outliers(K) * sizeof(int32_t) + K * sizeof(T));
  }
  int64_t* ends(void* memory) const { return (int64_t*)memory; }
  int32_t* places(void* memory) const { return (int32_t*)(ends(memory) + rows); }
  T* other_rows(void* memory) const { return (T*)(places(memory) + rows * most_outliers(K)); }
};

VEC_FN F magnitude(F x) { return max(x, sub(zero(), x)); }

// What an element must be larger than to be an outlier. The row is cut into stretches, up to eight of 64
// elements or more if it has so many, and each of them into every sixteenth element: a few large elements
// leave most of these parts alone, wherever they stand. Of the stretches the smallest mean counts, of the
// sixteen the lower quartile; parts that are zero are none.
template <Element kElement>
static float outlier_limit(const StorageOf<kElement>* x, int64_t K) {
  constexpr int kApart = 16, kVectors = kApart / kLanes;
  constexpr int64_t kMostStretches = 8, kLeastSteps = 4;
  const int64_t steps = K / kApart, whole = steps / kLeastSteps;
  const int64_t stretches = whole < 1 ? 1 : whole < kMostStretches ? whole : kMostStretches;
  F smallest[kVectors];
  for (int v = 0; v < kVectors; v++) smallest[v] = set1(kMostFinite);
  for (int64_t stretch = 0; stretch < stretches; stretch++) {
    const int64_t begin = steps * stretch / stretches, end = steps * (stretch + 1) / stretches;
    const F share = set1(kOutlier / (float)(end - begin));
    F limits[kVectors];
    for (int v = 0; v < kVectors; v++) limits[v] = zero();
    for (int64_t step = begin; step < end; step++)
      for (int v = 0; v < kVectors; v++) {
        const F sizes = magnitude(load_as<kElement>(x + step * kApart + v * kLanes));
        limits[v] = fma(sizes, share, limits[v]);
      }
    for (int v = 0; v < kVectors; v++) {  // a NaN is not smaller
      const F smaller = select(less_equal(limits[v], smallest[v]), limits[v], smallest[v]);
      smallest[v] = select(equal(limits[v], zero()), smallest[v], smaller);
    }
  }
  float limits[kApart];
  for (int v = 0; v < kVectors; v++) store(limits + v * kLanes, smallest[v]);
  int count = 0;  // of those that are sorted
  for (int i = 0; i < kApart; i++) {
    const float limit = limits[i];
    if (limit == kMostFinite) continue;
    int at = count++;
    for (; at > 0 && limits[at - 1] > limit; at--) limits[at] = limits[at - 1];
    limits[at] = limit;
  }
  return count == 0 ? kMostFinite : limits[count / 4];
}

// Writes the places of elements that are larger, and returns how many they are: `most` + 1 if they are more,
// or if one is NaN.
template <Element kElement>
static int64_t list_larger(float limit, const StorageOf<kElement>* x, int64_t K, int64_t most,
                           int32_t* places) {
  int64_t count = 0;
  for (int64_t k = 0; k < K; k += kLanes) {
    const F sizes = magnitude(load_as<kElement>(x + k));
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

// The same of a row's outliers.
template <Element kElement>
static int64_t list_outliers(const StorageOf<kElement>* x, int64_t K, int32_t* places) {
  const int64_t most = most_outliers(K);
  int64_t count = list_larger<kElement>(outlier_limit<kElement>(x, K), x, K, most, places);
  if (count > most) count = list_larger<kElement>(kMostFinite, x, K, most, places);
  if (count <= most) return count;
  places[0] = kNoNumber;
  return 1;
}

// The task with rows that have no outliers, for a form to pack; those it had are written down.
template <Element kElement>
static QuantizedTask set_outliers_aside(QuantizedTask task, void* memory) {
  typedef StorageOf<kElement> T;
  const OutlierLayout<kElement> layout(task);
  const int64_t K = layout.K;
  int64_t *const ends = layout.ends(memory), count = 0;
  int32_t* const places = layout.places(memory);
  for (int64_t m = 0; m < task.rows; m++)
    ends[m] = count += list_outliers<kElement>((const T*)task.x + m * task.x_row_stride, K, places + count);
  if (count == 0) return task;
  T* const rows = layout.other_rows(memory);
  for (int64_t m = 0, i = 0; m < task.rows; m++) {
    memcpy(rows + m * K, (const T*)task.x + m * task.x_row_stride, K * sizeof(T));
    for (; i < ends[m]; i++) {
      if (places[i] == kNoNumber)
        memset(rows + m * K, 0, K * sizeof(T));
      else
        rows[m * K + places[i]] = 0;
    }
  }
  task.x = rows;
  task.x_row_stride = K;
  return task;
}

// y of row m and kLanes outputs from n on, and the products of the row's outliers.
template <Element kElement>
static __attribute__((noinline)) F add_outliers(const FewTask& task, int64_t m, int64_t n, F y) {
  typedef StorageOf<kElement> T;
  const T* const x = (const T*)task.x + m * task.x_row_stride;
  const int64_t left = task.outputs - n, count = left < kLanes ? left : kLanes;
  const uint32_t mask = (1u << task.bits) - 1;
  const int32_t group = task.group, word_numbers = 32 / task.bits;
  for (int64_t i = task.begin(m); i < task.ends[m]; i++) {
    const int32_t k = task.places[i];
    if (k == kNoNumber) return set1(__builtin_nanf(""));
    const uint32_t* word = task.w + n * task.w_row_stride + k / word_numbers;
    const T* scale = (const T*)task.scales + n * task.scales_row_stride + k / group;
    const T* bias = (const T*)task.biases + n * task.biases_row_stride + k / group;
    const int shift = k % word_numbers * task.bits;
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

// What a form has calculated for row m and kLanes outputs from n on, where it belongs.
template <Element kElement>
VEC_FN void store_outputs(const FewTask& task, int64_t m, int64_t n, F y) {
  if (task.begin(m) < task.ends[m]) y = add_outliers<kElement>(task, m, n, y);
  store_some<kElement>((StorageOf<kElement>*)task.y + m * task.y_row_stride + n, y, task.outputs - n);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
