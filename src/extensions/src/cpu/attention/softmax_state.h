// The softmax state of a row: m, the subtrahend of its exponentials p = exp(s - m), and l, their sum.
//
// m is in natural units, so that the largest finite score fits. exp(s - m) is computed as 2^(s * log2(e) -
// fl(m * log2(e))). Every rescale uses the same rounded product, or partial sums would disagree by its error.
// For |m| > kRoundedLimit this error is too large: there s - m is formed first.
#pragma once

#include <math.h>

#include "cpu/vec/log2e.h"

namespace tiny_llm_ext::cpu {

constexpr double kLn2 = 0.69314718055994531;
constexpr float kRescaleThreshold = 5.5f;
constexpr float kRoundedLimit = 4096;

static inline bool uses_rounded_product(float m) { return fabsf(m) <= kRoundedLimit; }

// The base-2 exponent of the factor that turns a sum with m = `from` into one with m = `to`.
static inline float exponent_between(float from, float to) {
  return uses_rounded_product(from) && uses_rounded_product(to) ? from * kLog2e - to * kLog2e
                                                                : (from - to) * kLog2e;
}

// The lazy maximum: m moves only when a row's maximum `top` exceeds it by kRescaleThreshold. The division by
// l at the end cancels the difference, p stays below e^kRescaleThreshold, and O is almost never rescaled.
struct LazyMaximum {
  bool moves;
  float m, base;  // base is m, or 0 for a row that saw no key yet
};

static inline LazyMaximum lazy_maximum(float old, float top) {
  const bool moves = !(top <= old + kRescaleThreshold);  // NaN moves it
  const float m = moves ? top : old;
  return {moves, m, m == -INFINITY ? 0 : m};
}

// A sink is a score without a value: it adds to l only. m becomes the larger of m and the sink. Returns the
// factor for sums with the old m.
static inline float add_sink(float sink, float* m, float* l) {
  if (sink == -INFINITY) return 1;
  float top = *m > sink ? *m : sink;  // a NaN sink gives NaN
  float factor = *l == 0 ? 0 : exp2f(exponent_between(*m, top));
  *l = *l * factor + exp2f(exponent_between(sink, top));
  *m = top;
  return factor;
}

// The natural log-sum-exp of a row; -inf for a row that saw no key.
static inline float log_sum_exp(float m, float l) {
  if (l == 0) return -INFINITY;
  double base = uses_rounded_product(m) ? (double)(m * kLog2e) * kLn2 : (double)m;
  return (float)(base + log((double)l));
}

}  // namespace tiny_llm_ext::cpu
