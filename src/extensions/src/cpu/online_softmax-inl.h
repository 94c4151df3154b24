// One key tile's scores become probabilities; m, l and the output accumulator follow.
//
// Scores are in base 2. The reference m of the exponentials is not moved for every new maximum but only when
// a row's maximum outgrows it by kHeadroom: the result is the same after the one division at the end, p stays
// below 2^kHeadroom, and the accumulator is almost never rescaled. A row's decision depends on that row
// alone.
#pragma once

#include "cpu/mask-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kHeadroom = 8;

// What has to be done to a raw score of this tile.
struct ScoreSteps {
  float scale;             // into base 2; 1 when the queries carry it already
  float cap, inverse_cap;  // softcap in base 2; cap 0 means none
  const float* mask;       // packed mask tile or null
  const Limits* limits;    // null when every row sees every key of the tile
  bool plain() const { return cap == 0 && !mask && !limits; }
};

// Applies the steps to one row vector of the tile's scores (`stride` floats between keys); returns the
// maximum.
VEC_FN F finish_scores(float* s, int stride, int keys, int lane, const ScoreSteps& steps) {
  F top = set1(-INFINITY);
  for (int key = 0; key < keys; key++) {
    F x = mul(load(s + key * stride), set1(steps.scale));
    if (steps.cap != 0) x = mul(set1(steps.cap), tanh(mul(x, set1(steps.inverse_cap))));
    if (steps.mask) {
      F bias = load(steps.mask + key * stride + lane);
      x = select(equal(bias, set1(-INFINITY)), bias, add(x, bias));
    }
    if (steps.limits) {
      F k = set1((float)key);
      M seen = both(less_equal(load(steps.limits->first + lane), k),
                    less_equal(k, load(steps.limits->last + lane)));
      x = select(seen, x, set1(-INFINITY));
    }
    top = max(x, top);
    store(s + key * stride, x);
  }
  return top;
}

VEC_FN F maximum(const float* s, int stride, int keys) {
  F a = set1(-INFINITY), b = a, c = a, d = a;
  int key = 0;
  for (; key + 4 <= keys; key += 4) {
    a = max(load(s + key * stride), a);
    b = max(load(s + (key + 1) * stride), b);
    c = max(load(s + (key + 2) * stride), c);
    d = max(load(s + (key + 3) * stride), d);
  }
  for (; key < keys; key++) a = max(load(s + key * stride), a);
  return max(max(a, b), max(c, d));
}

// Moves the reference of one row vector where its new maximum asks for it, rescaling l and the accumulator.
// Returns what to subtract from the scores: the reference, or 0 for a row that has seen nothing yet.
VEC_FN F move_reference(RowTile& tile, int lane, F top, int E) {
  F old = load(tile.m + lane);
  M keep = less_equal(top, add(old, set1(kHeadroom)));
  F m = select(keep, old, top);
  F base = select(equal(m, set1(-INFINITY)), zero(), m);
  if (!all(keep)) {
    F alpha = exp2(sub(old, base));
    store(tile.m + lane, m);
    store(tile.l + lane, mul(load(tile.l + lane), alpha));
    int stride = tile.lanes();
    float* o = tile.o + lane;
    for (int e = 0; e < E / tile.spread; e++) store(o + e * stride, mul(load(o + e * stride), alpha));
  }
  return base;
}

// Beyond this a rounding error of the reference could itself overflow an exponential.
constexpr float kFusedLimit = 1e8f;

// How the scores of one row vector become probabilities: 2^(s * scale + shift).
struct Exponent {
  F scale, shift;
};

// Finishes the scores of one row vector and settles its reference. A plain positive scale is left to the
// exponentials, where it costs nothing.
VEC_FN Exponent settle_scores(RowTile& tile, float* s, int keys, int lane, int E, const ScoreSteps& steps) {
  int stride = tile.lanes();
  if (steps.plain() && steps.scale > 0) {
    F top = mul(maximum(s + lane, stride, keys), set1(steps.scale));
    if (all(less_equal(max(sub(zero(), top), top), set1(kFusedLimit))))
      return {set1(steps.scale), sub(zero(), move_reference(tile, lane, top, E))};
  }
  F top = finish_scores(s + lane, stride, keys, lane, steps);
  return {set1(1), sub(zero(), move_reference(tile, lane, top, E))};
}

// Scores [keys][lanes] -> probabilities, in the form Format's second product reads.
template <class Format>
static void online_softmax(RowTile& tile, float* s, int keys, int E, const ScoreSteps& steps) {
  for (int lane = 0; lane < tile.lanes(); lane += kLanes) {
    Exponent exponent = settle_scores(tile, s, keys, lane, E, steps);
    F sum = Format::exponentials(s + lane, tile.lanes(), keys, exponent);
    store(tile.l + lane, add(load(tile.l + lane), sum));
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
