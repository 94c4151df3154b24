// Arithmetic on the reference m that a row's exponentials are taken against: p = exp(s - m).
//
// m is held in natural units, so that the largest finite score has one. Exponentials are taken in base 2,
// with m * log2(e) rounded once; everything that compares two references must use the same rounding, or
// partial sums would disagree by that rounding error. Beyond kRoundedLimit it would matter, and differences
// are taken first.
#pragma once

#include <math.h>

#include "cpu/vec/log2e.h"

namespace tiny_llm_ext::cpu {

constexpr double kLn2 = 0.69314718055994531;
constexpr float kRoundedLimit = 4096;

static inline bool is_rounded(float m) { return fabsf(m) <= kRoundedLimit; }

// The base-2 exponent that leads from a sum taken against `from` to one taken against `to`.
static inline float exponent_between(float from, float to) {
  return is_rounded(from) && is_rounded(to) ? from * kLog2e - to * kLog2e : (from - to) * kLog2e;
}

// A sink joins the denominator only. Moves m to the larger of the two and adds the sink to l; returns what
// sums taken against the old m must be multiplied with.
static inline float add_sink(float sink, float* m, float* l) {
  if (sink == -INFINITY) return 1;
  float top = *m > sink ? *m : sink;  // a NaN sink wins, and surfaces
  float factor = *l == 0 ? 0 : exp2f(exponent_between(*m, top));
  *l = *l * factor + exp2f(exponent_between(sink, top));
  *m = top;
  return factor;
}

// log(sum exp) of a row with the sum l against m; -inf for a row without keys.
static inline float log_sum_exp(float m, float l) {
  if (l == 0) return -INFINITY;
  double base = is_rounded(m) ? (double)(m * kLog2e) * kLn2 : (double)m;
  return (float)(base + log((double)l));
}

}  // namespace tiny_llm_ext::cpu
