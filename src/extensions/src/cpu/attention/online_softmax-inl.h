// The online softmax of one key tile: scores become probabilities; m, l and O are updated.
//
// m is a lazy maximum, see softmax_state.h. Whether it moves depends on that row alone.
#pragma once

#include "cpu/attention/mask-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// From raw scores q.k of a tile to scores.
struct ScoreTransform {
  float scale;
  float softcap;            // 0: none
  const float* mask;        // packed mask tile, or null
  const RowLimits* limits;  // null if every row sees every key of the tile
  const uint8_t* absent;    // [keys] whether a key is in an absent page; null if none is
  // A positive scale alone is left to the exponentials: no extra operation there, and one rounding less.
  bool is_scale_only() const { return softcap == 0 && !mask && scale > 0 && scale * kLog2e <= kMaxFloat; }
};

// Applies scale, softcap and mask to the scores of one row vector; `stride` floats lead from key to key.
VEC_FN void transform_scores(float* s, int stride, int keys, int lane, const ScoreTransform& transform) {
  for (int key = 0; key < keys; key++) {
    F x = mul(load(s + key * stride), set1(transform.scale));
    if (transform.softcap != 0) x = mul(set1(transform.softcap), tanh(div(x, set1(transform.softcap))));
    if (transform.mask) {
      F bias = load(transform.mask + key * stride + lane);
      x = select(equal(bias, set1(-INFINITY)), bias, add(x, bias));
    }
    store(s + key * stride, x);
  }
}

VEC_FN void hide_invisible(float* s, int stride, int keys, int lane, const RowLimits& limits) {
  F first = load(limits.first + lane), last = load(limits.last + lane);
  for (int key = 0; key < keys; key++) {
    F k = set1((float)key);
    M seen = mask_and(less_equal(first, k), less_equal(k, last));
    store(s + key * stride, select(seen, load(s + key * stride), set1(-INFINITY)));
  }
}

VEC_FN void hide_absent(float* s, int stride, int keys, const uint8_t* absent) {
  for (int key = 0; key < keys; key++)
    if (absent[key]) store(s + key * stride, set1(-INFINITY));
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

VEC_FN M uses_rounded_product(F m) { return less_equal(abs(m), set1(kRoundedLimit)); }

// As in softmax_state.h, on vectors.
VEC_FN F exponent_between(F from, F to) {
  F log2e = set1(kLog2e);
  F rounded = sub(mul(from, log2e), mul(to, log2e));
  return select(mask_and(uses_rounded_product(from), uses_rounded_product(to)), rounded,
                mul(sub(from, to), log2e));
}

// lazy_maximum() on vectors: updates m of one row vector for the maximum `top` of new scores, rescales l and
// O of rows whose m moves, and returns the base.
VEC_FN F update_maximum(QueryTile& tile, int lane, F top, int E) {
  F old = load(tile.m + lane);
  M keep = less_equal(top, add(old, set1(kRescaleThreshold)));
  F m = select(keep, old, top);
  F base = select(equal(m, set1(-INFINITY)), zero(), m);
  if (!all(keep)) {
    F alpha = exp2(exponent_between(old, base));
    store(tile.m + lane, m);
    store(tile.l + lane, mul(load(tile.l + lane), alpha));
    int stride = tile.lanes();
    float* o = tile.o + lane;
    for (int e = 0; e < E / tile.lanes_per_row; e++) store(o + e * stride, mul(load(o + e * stride), alpha));
  }
  return base;
}

// Rows with |m| > kRoundedLimit: s becomes (s * scale - m) * log2(e). Other rows keep their scores for the
// FMA in exponentials(), so that a row's bits do not depend on its neighbours.
VEC_FN void precompute_exponents(float* s, int stride, int keys, F scale, F base, M rounded) {
  for (int key = 0; key < keys; key++) {
    F x = load(s + key * stride);
    F exponent = mul(sub(mul(x, scale), base), set1(kLog2e));
    store(s + key * stride, select(rounded, x, exponent));
  }
}

// Probabilities of one row vector are 2^(s * scale + shift).
struct Exponent {
  F scale, shift;
};

// Transforms the scores of one row vector and updates m.
VEC_FN Exponent update_state(QueryTile& tile, float* s, int keys, int lane, int E,
                             const ScoreTransform& transform) {
  int stride = tile.lanes();
  s += lane;
  if (!transform.is_scale_only()) transform_scores(s, stride, keys, lane, transform);
  if (transform.limits) hide_invisible(s, stride, keys, lane, *transform.limits);
  if (transform.absent) hide_absent(s, stride, keys, transform.absent);
  const float scale = transform.is_scale_only() ? transform.scale : 1;
  F base = update_maximum(tile, lane, mul(maximum(s, stride, keys), set1(scale)), E);
  M rounded = uses_rounded_product(base);
  Exponent exponent = {set1(scale * kLog2e), sub(zero(), mul(base, set1(kLog2e)))};
  if (!all(rounded)) {
    precompute_exponents(s, stride, keys, set1(scale), base, rounded);
    exponent = {select(rounded, exponent.scale, set1(1)), select(rounded, exponent.shift, zero())};
  }
  return exponent;
}

// Scores [keys][lanes] become probabilities, in the layout that Operands::values reads.
template <class Operands>
static void online_softmax(QueryTile& tile, float* s, int keys, int E, const ScoreTransform& transform) {
  for (int lane = 0; lane < tile.lanes(); lane += kLanes) {
    Exponent exponent = update_state(tile, s, keys, lane, E, transform);
    F sum = Operands::exponentials(s + lane, tile.lanes(), keys, exponent);
    store(tile.l + lane, add(load(tile.l + lane), sum));
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
