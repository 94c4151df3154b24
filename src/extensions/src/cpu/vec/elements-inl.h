// Moving rows between memory and vectors: element types, ragged ends, and the transposed layout of row tiles.
#pragma once

#include <string.h>

#include "cpu/kernels/kernels.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
struct Storage {
  typedef uint16_t type;
};
template <>
struct Storage<Element::f32> {
  typedef float type;
};
template <Element kElement>
using StorageOf = typename Storage<kElement>::type;

template <Element kElement>
VEC_FN F load_as(const StorageOf<kElement>* p) {
  if constexpr (kElement == Element::f32) return load(p);
  if constexpr (kElement == Element::f16) return load_f16(p);
  if constexpr (kElement == Element::bf16) return load_bf16(p);
}

template <Element kElement>
VEC_FN void store_as(StorageOf<kElement>* p, F x) {
  if constexpr (kElement == Element::f32) store(p, x);
  if constexpr (kElement == Element::f16) store_f16(p, x);
  if constexpr (kElement == Element::bf16) store_bf16(p, x);
}

// One element in all lanes.
template <Element kElement>
VEC_FN F fill_from(const StorageOf<kElement>* p) {
  if constexpr (kElement == Element::f32) return set1(*p);
  StorageOf<kElement> same[kLanes];
  for (int lane = 0; lane < kLanes; lane++) same[lane] = *p;
  return load_as<kElement>(same);
}

// The first `count` elements at p, then zeros; reads nothing beyond.
template <Element kElement>
VEC_FN F load_some(const StorageOf<kElement>* p, int64_t count) {
  if (count >= kLanes) return load_as<kElement>(p);
  if constexpr (kMaskedLoads) {
    const int some = count > 0 ? (int)count : 0;
    if constexpr (kElement == Element::f32) return load_first(p, some);
    if constexpr (kElement == Element::f16) return load_first_f16(p, some);
    if constexpr (kElement == Element::bf16) return load_first_bf16(p, some);
  }
  StorageOf<kElement> part[kLanes] = {};
  if (count > 0) memcpy(part, p, count * sizeof(*p));
  return load_as<kElement>(part);
}

template <Element kElement>
VEC_FN void store_some(StorageOf<kElement>* p, F x, int64_t count) {
  if (count >= kLanes) return store_as<kElement>(p, x);
  StorageOf<kElement> part[kLanes];
  store_as<kElement>(part, x);
  memcpy(p, part, count * sizeof(*p));
}

// Prefetches a line to the second-level cache; addresses beyond an array are harmless. The first-level cache
// has too few outstanding misses for the latency of memory (benches/LOG.md).
VEC_FN void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }
// The same to the first-level cache, for lines that are read before they are evicted.
VEC_FN void prefetch_l1(const void* p) { __builtin_prefetch(p, 0, 3); }
VEC_FN void prefetch(const void* p, size_t bytes) {
  for (size_t byte = 0; byte < bytes; byte += 64) prefetch_l2((const char*)p + byte);
}

// out[unit][lane] = row(lane)(unit) for a tile of `rows` rows, `vectors` vectors wide; lanes without a row
// get 0. read(row, unit) gives kLanes units of a row.
template <class Read>
VEC_FN void pack_transposed(int rows, int vectors, int units, float* out, Read read) {
  for (int v = 0; v < vectors; v++)
    for (int unit = 0; unit < units; unit += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = v * kLanes + j < rows ? read(v * kLanes + j, unit) : zero();
      transpose(block);
      int count = units - unit < kLanes ? units - unit : kLanes;
      for (int j = 0; j < count; j++) store(out + ((size_t)(unit + j) * vectors + v) * kLanes, block[j]);
    }
}

// The same for a spread tile (one vector): lane row * spread + j takes unit step * spread + j.
template <class Read>
VEC_FN void pack_spread(int rows, int spread, int units, float* out, Read read) {
  float row[256 + kLanes];
  for (int x = 0; x < units / spread * kLanes; x++) out[x] = 0;
  for (int r = 0; r < rows; r++) {
    for (int unit = 0; unit < units; unit += kLanes) store(row + unit, read(r, unit));
    for (int step = 0; step < units / spread; step++)
      for (int j = 0; j < spread; j++) out[step * kLanes + r * spread + j] = row[step * spread + j];
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
