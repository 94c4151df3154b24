// Few rows as the B operand of AMX products of bfloat16, in the order that the numbers of the weights have.
// Wider types become terms in bfloat16 that add up to x.
#pragma once

#include <math.h>

#include "cpu/gemm/microkernel_amx-inl.h"
#include "cpu/quantized/codec_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMostRowTiles = 2;

// x of a call: [step][term][tile][pair of numbers][lane], and behind it in float32 the sums over groups,
// [group][tile][kLanes], and what is one in a row, [row]. A lane is a row; those behind the last are zero.
// Few enough rows have half as many lanes (less of x passes through the caches), and their sums stand twice.
struct LaneRows {
  int64_t rows, terms, steps, groups, tiles, lanes;

  LaneRows(const QuantizedTask& task, int terms)
      : rows(task.rows),
        terms(terms),
        steps(task.groups * task.group / kStep),
        groups(task.groups),
        tiles((rows + kLanes - 1) / kLanes),
        lanes(rows <= kLanes / 2 ? kLanes / 2 : kLanes) {}

  int64_t tile_floats() const { return kLanes * lanes; }
  int64_t step_floats() const { return terms * tiles * tile_floats(); }
  int64_t sums() const { return steps * step_floats(); }
  int64_t units() const { return sums() + groups * tiles * kLanes; }
  size_t floats() const { return units() + rows; }
};

// What elements of x are multiplied as, in units of 2^exponent.
template <Element kElement>
VEC_FN F as_multiplied(F x, F exponent) {
  if constexpr (kElement == Element::bf16) return as_multiplied_in_pairs(x);
  return _mm512_scalef_ps(x, sub(zero(), exponent));
}

// The terms of 2 * kLanes elements of x, in units of 2^exponent. `next` gives one after the other: what
// bfloat16 holds of what those before have left.
template <Element kElement>
class TermsOf {
  F first_, second_;

 public:
  VEC_FN TermsOf of(const StorageOf<kElement>* x, F exponent) {
    TermsOf terms;
    terms.first_ = as_multiplied<kElement>(load_as<kElement>(x), exponent);
    terms.second_ = as_multiplied<kElement>(load_as<kElement>(x + kLanes), exponent);
    return terms;
  }

  VEC_FN __m512i next(TermsOf& terms) { return next_term(terms.first_, terms.second_); }
};

template <>
class TermsOf<Element::bf16> {
  __m512i only_;

 public:
  VEC_FN TermsOf of(const uint16_t* x, F) {
    TermsOf terms;
    terms.only_ = _mm512_loadu_si512(x);
    return terms;
  }

  VEC_FN __m512i next(TermsOf& terms) { return terms.only_; }
};

// The numbers of a step as `Numbers` has those of the weights, from all of the steps that it has together.
template <class Numbers>
VEC_FN F in_order(__m512i first, __m512i last, int step) {
  alignas(64) uint16_t from[kStep];
  for (int i = 0; i < kStep; i++) from[i] = (uint16_t)Numbers::number(step, i);
  return _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, _mm512_load_si512(from), last));
}

// The exponent of the largest number of a row. Terms of small numbers would be too small for tiles, and sums
// of large ones too large, those of digits, too. Results come back from its units last, so scales are of the
// size that weights have.
template <Element kElement>
static int row_exponent(const StorageOf<kElement>* x, int64_t K) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t k = 0; k < K; k += kLanes)
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(load_as<kElement>(x + k)),
                                                         _mm512_set1_epi32(0x7fffffff)));
  return (int)(_mm512_reduce_max_epu32(largest) >> 23) - 127;
}

// The lanes of a tile for the steps that `Numbers` has together, from `step` on.
template <class Numbers, Element kElement>
static void pack_tile(const QuantizedTask& task, const LaneRows& layout, const int* exponents, int64_t step,
                      int64_t tile, float* packed) {
  typedef TermsOf<kElement> Terms;
  constexpr int kTogether = Numbers::kTogether;
  F block[kTerms<kElement>][kTogether][kLanes];
  for (int64_t lane = 0; lane < kLanes; lane++) {
    const int64_t m = tile * kLanes + lane;
    if (m >= task.rows) {
      for (auto& term : block)
        for (auto& lanes : term) lanes[lane] = zero();
      continue;
    }
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride + step * kStep;
    const F exponent = set1((float)exponents[m]);
    Terms first = Terms::of(x, exponent), last = Terms::of(x + (kTogether - 1) * kStep, exponent);
    for (auto& term : block) {
      const __m512i of_first = Terms::next(first), of_last = Terms::next(last);
      for (int at = 0; at < kTogether; at++) term[at][lane] = in_order<Numbers>(of_first, of_last, at);
    }
  }
  const __mmask16 lanes = (__mmask16)((1 << layout.lanes) - 1);
  for (int term = 0; term < kTerms<kElement>; term++)
    for (int at = 0; at < kTogether; at++) {
      transpose(block[term][at]);
      float* out =
          packed + (step + at) * layout.step_floats() + (term * layout.tiles + tile) * layout.tile_floats();
      for (int pair = 0; pair < kLanes; pair++)
        _mm512_mask_storeu_ps(out + pair * layout.lanes, lanes, block[term][at][pair]);
    }
}

template <class Numbers, Element kElement>
static void pack_lanes(const QuantizedTask& task, const LaneRows& layout, float* packed) {
  int exponents[kMostRowTiles * kLanes];
  float *sums = packed + layout.sums(), *units = packed + layout.units();
  memset(sums, 0, layout.groups * layout.tiles * kLanes * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
    // A single term, and two of float16, are taken as they are.
    exponents[m] = kElement == Element::f32 ? row_exponent<kElement>(x, task.groups * task.group) : 0;
    units[m] = ldexpf(Numbers::kUnit, exponents[m]);
    const F exponent = set1((float)exponents[m]);
    for (int64_t g = 0; g < task.groups; g++, x += task.group) {
      F sum = zero();
      for (int e = 0; e < task.group; e += kLanes)
        sum = add(sum, as_multiplied<kElement>(load_as<kElement>(x + e), exponent));
      float* of_group = sums + g * layout.tiles * kLanes;
      of_group[m] = _mm512_reduce_add_ps(sum) / Numbers::kUnit;
      if (layout.lanes < kLanes) of_group[layout.lanes + m] = of_group[m];
    }
  }
  for (int64_t step = 0; step < layout.steps; step += Numbers::kTogether)
    for (int64_t tile = 0; tile < layout.tiles; tile++)
      pack_tile<Numbers, kElement>(task, layout, exponents, step, tile, packed);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
