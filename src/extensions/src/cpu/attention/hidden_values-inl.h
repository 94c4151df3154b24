// Values that are NaN or infinite, of keys that some rows do not see.
//
// The products multiply every value of a key tile by a probability, and 0 times NaN is NaN. So a task in
// whose result a NaN appears, and whose rows may not see every key, runs once more with 0 in the place of
// these values, which are then added to the rows that see them. All other values are multiplied as before: a
// row that sees none of them has the bits that it has beside finite values.
#pragma once

#include "cpu/attention/online_softmax-inl.h"
#include "cpu/attention/pages-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

VEC_FN bool may_hide_keys(const ForwardTask& task) {
  return task.mask.kind != MaskKind::none || task.left < kUnbounded || task.right < kUnbounded;
}

static bool has_nan(const QueryTile& tile, int E) {
  const int count = E / tile.lanes_per_row * tile.lanes();
  bool ordered = true;
  for (int x = 0; x < count; x += kLanes) {
    const F o = load(tile.o + x);
    ordered = ordered && all(equal(o, o));
  }
  return !ordered;
}

template <Element kElement>
VEC_FN bool is_finite(StorageOf<kElement> x) {
  if constexpr (kElement == Element::f32) return fabsf(x) <= kMaxFloat;
  constexpr uint16_t kExponent = kElement == Element::f16 ? 0x7c00 : 0x7f80;
  return ((uint16_t)x & kExponent) != kExponent;
}

template <class T>
VEC_FN const T* row_of(const SourceRows& rows, int row) {
  return rows.rows ? (const T*)rows.rows[row] : (const T*)rows.data + row * rows.stride;
}

// A copy in `memory` with 0 for values that are not finite.
template <Element kElement>
static SourceRows finite_rows(const SourceRows& rows, int count, int E, StorageOf<kElement>* memory) {
  typedef StorageOf<kElement> T;
  for (int key = 0; key < count; key++) {
    const T* row = row_of<T>(rows, key);
    for (int e = 0; e < E; e++) memory[key * padded(E) + e] = is_finite<kElement>(row[e]) ? row[e] : T(0);
  }
  return {memory, padded(E)};
}

// Adds the values that finite_rows() leaves out to the rows that see their keys, of which `transform` hides
// the others. A probability is above 0, and does not change them.
template <Element kElement>
static void add_other_values(QueryTile& tile, const SourceRows& values, int count, int E,
                             const ScoreTransform& transform) {
  typedef StorageOf<kElement> T;
  const int lanes = tile.lanes(), per_row = tile.lanes_per_row;
  const auto sees = [&](int lane, int key) {
    const RowLimits* limits = transform.limits;
    if (limits && (key < limits->first[lane] || key > limits->last[lane])) return false;
    return !transform.mask || transform.mask[key * lanes + lane] != -INFINITY;
  };
  for (int key = 0; key < count; key++) {
    const T* row = row_of<T>(values, key);
    for (int e = 0; e < E; e++) {
      if (is_finite<kElement>(row[e])) continue;
      float value[kLanes];
      store(value, load_some<kElement>(row + e, 1));
      for (int lane = 0; lane < tile.rows * per_row; lane += per_row)
        if (sees(lane, key)) tile.o[e / per_row * lanes + lane + e % per_row] += value[0];
    }
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
