// One key tile's scores become probabilities; m, l and the output accumulator follow.
//
// The reference m of the exponentials is not moved for every new maximum but only when a row's maximum
// outgrows it by kHeadroom: the result is the same after the one division at the end, p stays below
// e^kHeadroom, and the accumulator is almost never rescaled. A row's decision depends on that row alone.
#pragma once

#include "cpu/attention/mask-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr float kHeadroom = 5.5f;

// What has to be done to a raw score q.k of this tile.
struct ScoreSteps {
  float scale;
  float cap;             // 0: none
  const float* mask;     // packed mask tile or null
  const Limits* limits;  // null when every row sees every key of the tile
  // A positive scale alone need not be applied: the exponentials take it along for nothing, and more exactly.
  bool linear() const { return cap == 0 && !mask && scale > 0 && scale * kLog2e <= kLargest; }
};

// Raw -> final scores of one row vector, `stride` floats between keys.
VEC_FN void bend_scores(float* s, int stride, int keys, int lane, const ScoreSteps& steps) {
  for (int key = 0; key < keys; key++) {
    F x = mul(load(s + key * stride), set1(steps.scale));
    if (steps.cap != 0) x = mul(set1(steps.cap), tanh(div(x, set1(steps.cap))));
    if (steps.mask) {
      F bias = load(steps.mask + key * stride + lane);
      x = select(equal(bias, set1(-INFINITY)), bias, add(x, bias));
    }
    store(s + key * stride, x);
  }
}

VEC_FN void hide_unseen(float* s, int stride, int keys, int lane, const Limits& limits) {
  F first = load(limits.first + lane), last = load(limits.last + lane);
  for (int key = 0; key < keys; key++) {
    F k = set1((float)key);
    M seen = both(less_equal(first, k), less_equal(k, last));
    store(s + key * stride, select(seen, load(s + key * stride), set1(-INFINITY)));
  }
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

VEC_FN F absolute(F x) { return max(sub(zero(), x), x); }
VEC_FN M is_rounded(F m) { return less_equal(absolute(m), set1(kRoundedLimit)); }

// exponent_between() of softmax_state.h on vectors.
VEC_FN F exponent_between(F from, F to) {
  F log2e = set1(kLog2e);
  F rounded = sub(mul(from, log2e), mul(to, log2e));
  return select(both(is_rounded(from), is_rounded(to)), rounded, mul(sub(from, to), log2e));
}

// Moves the reference of one row vector where its new maximum asks for it, rescaling l and the accumulator.
// Returns what to subtract from the scores: the reference, or 0 for a row that has seen nothing yet.
VEC_FN F move_reference(RowTile& tile, int lane, F top, int E) {
  F old = load(tile.m + lane);
  M keep = less_equal(top, add(old, set1(kHeadroom)));
  F m = select(keep, old, top);
  F base = select(equal(m, set1(-INFINITY)), zero(), m);
  if (!all(keep)) {
    F alpha = exp2(exponent_between(old, base));
    store(tile.m + lane, m);
    store(tile.l + lane, mul(load(tile.l + lane), alpha));
    int stride = tile.lanes();
    float* o = tile.o + lane;
    for (int e = 0; e < E / tile.spread; e++) store(o + e * stride, mul(load(o + e * stride), alpha));
  }
  return base;
}

// Rows with enormous scores: exponents are formed one by one, the difference first. The others keep their
// scores, so that a row's bits do not depend on its neighbours.
VEC_FN void form_exponents(float* s, int stride, int keys, F scale, F base, M ordinary) {
  for (int key = 0; key < keys; key++) {
    F x = load(s + key * stride);
    F exponent = mul(sub(mul(x, scale), base), set1(kLog2e));
    store(s + key * stride, select(ordinary, x, exponent));
  }
}

// How the scores of one row vector become probabilities: 2^(s * scale + shift).
struct Exponent {
  F scale, shift;
};

// Finishes the scores of one row vector and settles its reference.
VEC_FN Exponent settle_scores(RowTile& tile, float* s, int keys, int lane, int E, const ScoreSteps& steps) {
  int stride = tile.lanes();
  s += lane;
  if (!steps.linear()) bend_scores(s, stride, keys, lane, steps);
  if (steps.limits) hide_unseen(s, stride, keys, lane, *steps.limits);
  const float scale = steps.linear() ? steps.scale : 1;
  F base = move_reference(tile, lane, mul(maximum(s, stride, keys), set1(scale)), E);
  M ordinary = is_rounded(base);
  Exponent exponent = {set1(scale * kLog2e), sub(zero(), mul(base, set1(kLog2e)))};
  if (!all(ordinary)) {
    form_exponents(s, stride, keys, set1(scale), base, ordinary);
    exponent = {select(ordinary, exponent.scale, set1(1)), select(ordinary, exponent.shift, zero())};
  }
  return exponent;
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
