// What a word of packed weights is multiplied with: it gives some vectors of factors, each for one unit of x.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Where the units of x beside a word of a row lie: place(word, unit).
//
// Writes those of a group, from its words `word` on, for units that need each only its own elements of x.
template <class Units, class Place>
VEC_FN void write_shares(const float* wide, int group_words, int64_t word, Place place) {
  for (int i = 0; i < group_words; i++, wide += 32 / Units::kBits)
    for (int unit = 0; unit < Units::kUnits; unit++) *place(word + i, unit) = Units::pack(wide, unit);
}

// Units in float32: the elements of x themselves.
template <int kBits_>
struct WideUnits {
  static constexpr int kBits = kBits_;
  static constexpr bool kWhole = false;               // whether sums are whole numbers
  static constexpr float kOffset = 1 << (kBits - 1);  // a factor is that less than its weight's number
  static constexpr int kUnits = 32 / kBits;           // of x beside a word
  static constexpr int kFactors = 32 / kBits;         // that a word gives
  static constexpr int unit_of(int factor) { return factor; }

  // A unit of the elements of x beside a word.
  static float pack(const float* share, int unit) { return share[unit]; }

  VEC_FN W load(const float* words) { return load_words<kBits>((const uint32_t*)words); }
  template <int kFactor>
  VEC_FN F factor(W words) {
    return number<kBits, kFactor>(words);
  }
  VEC_FN F mac(F a, F b, F c) { return fma(a, b, c); }
  VEC_FN F mac_broadcast(const float* a, F b, F c) { return fma(set1(*a), b, c); }
  VEC_FN F as_multiplied(F x) { return x; }  // what products take elements of x for

  // Calls work(), which makes or multiplies units, in the mode of the thread that they need.
  template <class Work>
  VEC_FN void in_mode(const Work& work) {
    work();
  }
};

// The elements of x beside a group of weights in float32, and their sum, as they are multiplied.
template <class Units, Element kElement>
VEC_FN float widen_group(const StorageOf<kElement>* x, int count, float* wide) {
  F sum = zero();
  for (int e = 0; e < count; e += kLanes) {
    F part = load_as<kElement>(x + e);
    store(wide + e, part);
    sum = add(sum, Units::as_multiplied(part));
  }
  float lanes[kLanes], total = 0;
  store(lanes, sum);
  for (int lane = 0; lane < kLanes; lane++) total += lanes[lane];
  return total;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
