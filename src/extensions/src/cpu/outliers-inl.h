// Elements of x that are far larger than the others of their row, where rows are few. The forms for few rows
// multiply by groups of weights and round in units of what is largest in a group. Where the weights of that
// are zero, it leaves nothing in the result but its rounding, which can be more than all else. So the forms
// get rows that have zeros in the places of such elements, and each of them is multiplied by itself, with its
// weights in float32. Infinities and NaN are always among them: the forms see none.
//
// A row's outliers, and with them its bits, depend on no other row.
#pragma once

#include "cpu/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kOutlier = 256;  // times the usual size, or more
constexpr float kMostFinite = 0x1.fffffep127f;

// A task of few rows. The outliers of row m stand at places[ends[m - 1]] to places[ends[m]].
struct FewTask : QuantizedTask {
  const int64_t* ends;
  const int32_t* places;

  int64_t begin(int64_t m) const { return m == 0 ? 0 : ends[m - 1]; }
};

// Where they lie, and the rows without them if there are any.
template <Element kElement>
struct OutlierRows {
  typedef StorageOf<kElement> T;
  int64_t K, rows;

  explicit OutlierRows(const QuantizedTask& task) : K(task.groups * task.group), rows(task.rows) {}

  size_t bytes() const { return rows * (sizeof(int64_t) + K * (sizeof(int32_t) + sizeof(T))); }
  int64_t* ends(void* memory) const { return (int64_t*)memory; }
  int32_t* places(void* memory) const { return (int32_t*)(ends(memory) + rows); }
  T* usual(void* memory) const { return (T*)(places(memory) + rows * K); }
};

VEC_FN F magnitude(F x) { return max(x, sub(zero(), x)); }

// The largest number of a row that is no outlier. The mean of each sixteenth of the row is taken by itself:
// outliers make some of them large, but hardly most. Elements that are all zero are of no size.
template <Element kElement>
static float largest_usual(const StorageOf<kElement>* x, int64_t K) {
  constexpr int kParts = 16, kVectors = kParts / kLanes;
  const F share = set1(kOutlier * kParts / (float)K);
  F sums[kVectors];
  for (int v = 0; v < kVectors; v++) sums[v] = zero();
  for (int64_t k = 0; k < K; k += kParts)
    for (int v = 0; v < kVectors; v++)
      sums[v] = fma(magnitude(load_as<kElement>(x + k + v * kLanes)), share, sums[v]);
  float sizes[kParts];
  for (int v = 0; v < kVectors; v++) store(sizes + v * kLanes, sums[v]);
  int count = 0;  // of those that are sorted
  for (int i = 0; i < kParts; i++) {
    if (sizes[i] == 0) continue;
    const float size = sizes[i] < kMostFinite ? sizes[i] : kMostFinite;  // NaN, too
    int at = count++;
    for (; at > 0 && sizes[at - 1] > size; at--) sizes[at] = sizes[at - 1];
    sizes[at] = size;
  }
  return count == 0 ? kMostFinite : sizes[count / 4];
}

// Writes the places of a row's outliers and returns their end.
template <Element kElement>
static int32_t* find_outliers(const StorageOf<kElement>* x, int64_t K, int32_t* places) {
  const float largest = largest_usual<kElement>(x, K);
  for (int64_t k = 0; k < K; k += kLanes) {
    const F sizes = magnitude(load_as<kElement>(x + k));
    if (all(less_equal(sizes, set1(largest)))) continue;
    float size[kLanes];
    store(size, sizes);
    for (int lane = 0; lane < kLanes; lane++)
      if (!(size[lane] <= largest)) *places++ = (int32_t)(k + lane);
  }
  return places;
}

// The task with rows that have no outliers, for a form to pack; those it had are written down.
template <Element kElement>
static QuantizedTask set_outliers_aside(QuantizedTask task, void* memory) {
  typedef StorageOf<kElement> T;
  const OutlierRows<kElement> layout(task);
  int64_t* const ends = layout.ends(memory);
  int32_t *const places = layout.places(memory), *end = places;
  for (int64_t m = 0; m < task.rows; m++) {
    end = find_outliers<kElement>((const T*)task.x + m * task.x_row_stride, layout.K, end);
    ends[m] = end - places;
  }
  if (end == places) return task;
  T* const usual = layout.usual(memory);
  for (int64_t m = 0, i = 0; m < task.rows; m++) {
    memcpy(usual + m * layout.K, (const T*)task.x + m * task.x_row_stride, layout.K * sizeof(T));
    for (; i < ends[m]; i++) usual[m * layout.K + places[i]] = 0;
  }
  task.x = usual;
  task.x_row_stride = layout.K;
  return task;
}

// y of row m and kLanes outputs from n on, and the products of the row's outliers.
template <Element kElement>
static __attribute__((noinline, cold)) F add_outliers(const FewTask& task, int64_t m, int64_t n, F y) {
  typedef StorageOf<kElement> T;
  const int64_t left = task.outputs - n, count = left < kLanes ? left : kLanes;
  for (int64_t i = task.begin(m); i < task.ends[m]; i++) {
    const int64_t k = task.places[i];
    float numbers[kLanes] = {};
    T scales[kLanes] = {}, biases[kLanes] = {};
    for (int64_t lane = 0; lane < count; lane++) {
      const uint32_t word = task.w[(n + lane) * task.w_row_stride + k * task.bits / 32];
      numbers[lane] = (float)(word >> k * task.bits % 32 & ((1u << task.bits) - 1));
      scales[lane] = ((const T*)task.scales)[(n + lane) * task.scales_row_stride + k / task.group];
      biases[lane] = ((const T*)task.biases)[(n + lane) * task.biases_row_stride + k / task.group];
    }
    const F weights = fma(load(numbers), load_as<kElement>(scales), load_as<kElement>(biases));
    y = fma(weights, fill_from<kElement>((const T*)task.x + m * task.x_row_stride + k), y);
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
