// The largest elements of a long row, and its logsumexp.
#pragma once

#include <math.h>

#include "cpu/interface/row_kernels.h"
#include "cpu/vec/elements-inl.h"
#include "cpu/vec/log2e.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The larger of a and b; a if either is NaN.
VEC_FN F larger(F a, F b) { return select(less_equal(a, b), b, a); }

VEC_FN float largest_lane(F x) {
  float lanes[kLanes], best = -INFINITY;
  store(lanes, x);
  for (int j = 0; j < kLanes; j++) best = lanes[j] > best ? lanes[j] : best;
  return best;
}

template <Element kElement>
VEC_FN float element_at(const StorageOf<kElement>* p) {
  float lanes[kLanes];
  store(lanes, load_some<kElement>(p, 1));
  return lanes[0];
}

// In each lane the largest of its part of the elements; -inf if all are NaN.
template <Element kElement>
VEC_FN F largest_in(const StorageOf<kElement>* x, int64_t count) {
  F best[4] = {set1(-INFINITY), set1(-INFINITY), set1(-INFINITY), set1(-INFINITY)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) best[j] = larger(best[j], load_as<kElement>(x + i + j * kLanes));
  for (; i < count; i++) best[0] = larger(best[0], set1(element_at<kElement>(x + i)));
  return larger(larger(best[0], best[1]), larger(best[2], best[3]));
}

template <Element kElement>
VEC_FN bool has_nan(const StorageOf<kElement>* x, int64_t count) {
  const F zeros = zero();
  M ordered = equal(zeros, zeros);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F part = load_as<kElement>(x + i);
    ordered = mask_and(ordered, equal(part, part));
  }
  if (i < count) {
    const F part = load_some<kElement>(x + i, count - i);
    ordered = mask_and(ordered, equal(part, part));
  }
  return !all(ordered);
}

// Finds the block with the largest element, then the element. The first NaN ends the search.
template <Element kElement>
static int64_t argmax(const void* row, int64_t count) {
  constexpr int64_t kBlock = 512;
  const StorageOf<kElement>* x = (const StorageOf<kElement>*)row;
  float best = -INFINITY;
  int64_t where = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = count - begin < kBlock ? count - begin : kBlock;
    if (has_nan<kElement>(x + begin, size)) {
      while (element_at<kElement>(x + begin) == element_at<kElement>(x + begin)) begin++;
      return begin;
    }
    const F block = largest_in<kElement>(x + begin, size);
    if (all(less_equal(block, set1(best)))) continue;
    best = largest_lane(block);
    where = begin;
  }
  while (element_at<kElement>(x + where) != best) where++;
  return where;
}

// See FindAboveTask: larger elements have larger keys, of equal ones that with the smaller index; NaN has the
// smallest.
VEC_FN uint64_t key_of(float x, int64_t index) {
  uint32_t order = 0;
  if (x == x) {
    x += 0.0f;  // -0 becomes +0: they are equal
    memcpy(&order, &x, sizeof x);
    order = order & 0x80000000 ? ~order : order | 0x80000000;
  }
  return (uint64_t)order << 32 | (uint32_t)~(uint32_t)index;
}

template <Element kElement>
static void find_above(FindAboveTask& task) {
  const StorageOf<kElement>* x = (const StorageOf<kElement>*)task.row;
  const F limit = set1(task.threshold);
  while (task.next < task.count && task.found < task.capacity) {
    const int64_t left = task.count - task.next;
    if (left >= 4 * kLanes) {
      M low = less_equal(load_as<kElement>(x + task.next), limit);
#pragma GCC unroll 4
      for (int j = 1; j < 4; j++)
        low = mask_and(low, less_equal(load_as<kElement>(x + task.next + j * kLanes), limit));
      if (all(low)) {
        task.next += 4 * kLanes;
        continue;
      }
    }
    float lanes[kLanes];
    store(lanes, load_some<kElement>(x + task.next, left));
    const int64_t stop = left < kLanes ? task.count : task.next + kLanes;
    for (int j = 0; task.next < stop && task.found < task.capacity; j++, task.next++)
      if (!(lanes[j] <= task.threshold)) task.sort_keys[task.found++] = key_of(lanes[j], task.next);
  }
}

// log(sum e^x), relative to the largest x so that nothing overflows.
template <Element kElement>
static float logsumexp(const void* row, int64_t count) {
  const StorageOf<kElement>* x = (const StorageOf<kElement>*)row;
  const float best = largest_lane(largest_in<kElement>(x, count));
  if (best == INFINITY) {
    for (int64_t i = 0; i < count; i++) {
      float lanes[kLanes];
      store(lanes, fill_from<kElement>(x + i));
      if (lanes[0] != lanes[0]) return lanes[0];  // NaN wins over infinity
    }
    return best;
  }
  // If all are -inf, so is the result: the reference is then 0.
  const F reference = set1(best == -INFINITY ? 0.0f : best), scale = set1(kLog2e);
  F sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const F part = load_as<kElement>(x + i + j * kLanes);
      sums[j] = add(sums[j], exp2(mul(sub(part, reference), scale)));
    }
  float lanes[kLanes];
  store(lanes, sum_neighbours<kLanes>(add(add(sums[0], sums[1]), add(sums[2], sums[3]))));
  float sum = lanes[0];
  for (; i < count; i += kLanes) {
    const int64_t left = count - i < kLanes ? count - i : kLanes;
    store(lanes, exp2(mul(sub(load_some<kElement>(x + i, left), reference), scale)));
    for (int64_t j = 0; j < left; j++) sum += lanes[j];
  }
  return (best == -INFINITY ? 0.0f : best) + logf(sum);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
