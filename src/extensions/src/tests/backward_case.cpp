// Cotangents from a seed, and gradients by definition.
#include "backward_case.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tiny_llm_ext::tests {
namespace {

// The relative error of one rounding to the element type.
double rounding(Element element) {
  return element == Element::f32 ? 0x1p-24 : element == Element::f16 ? 0x1p-11 : 0x1p-8;
}

// A gradient rounded to the element type; float16 has a smallest step.
void round_error(const BackwardCase& c, Gradient& gradient) {
  for (size_t n = 0; n < gradient.value.size(); ++n) {
    gradient.error[n] += rounding(c.element) * (std::fabs(gradient.value[n]) + gradient.error[n]);
    gradient.error[n] += c.element == Element::f16 ? 0x1p-25 : 1e-30;
  }
}

}  // namespace

BackwardCase BackwardCase::numbered(int number) {
  BackwardCase c{AttentionCase::numbered(number), {}, {}, {}, {}};
  // The forward tests also have NaN in queries and keys, infinite values, and scores beyond the range of
  // float32.
  for (std::vector<double>* values : {&c.q, &c.k}) {
    for (double& x : *values) x = std::isnan(x) ? 1 : x;
  }
  for (double& x : c.v) x = std::isinf(x) ? NAN : x;
  if (c.poison != Poison::value) c.poison = Poison::none;
  if (c.scale > 1) c.scale = 0.5f;

  std::mt19937 generator(number + 1'000'000);
  std::normal_distribution<double> normal;
  const ExpectedAttention forward = expected_attention(c);
  const bool uses_lse = number % 3 == 0;
  for (int64_t row = 0; row < c.gqa_heads * c.L; ++row) {
    c.lse.push_back(static_cast<float>(forward.lse[row]));
    const bool takes_part = c.takes_part(row);
    c.d_lse.push_back(!takes_part ? NAN : uses_lse ? static_cast<float>(normal(generator)) : 0);
    for (int e = 0; e < c.E; ++e) {
      c.o.push_back(takes_part ? rounded(c.element, forward.o[row * c.E + e]) : NAN);
      c.d_o.push_back(takes_part ? rounded(c.element, normal(generator)) : NAN);
      if (!takes_part) c.q[row * c.E + e] = NAN;
    }
  }
  return c;
}

bool BackwardCase::takes_part(int64_t row) const { return row % L < n_q && lse[row] != -INFINITY; }

ExpectedGradients expected_gradients(const BackwardCase& c, bool rounds_factors) {
  const int64_t rows = c.gqa_heads * c.L;
  const auto zeros = [](int64_t size) {
    return Gradient{std::vector<double>(size), std::vector<double>(size)};
  };
  ExpectedGradients a{zeros(rows * c.E), zeros(c.n_k * c.E), zeros(c.n_k * c.E), {}, {}};
  constexpr double kSum = 4e-6;  // of the terms of a float32 sum
  const double factor_rounding = rounds_factors ? 0x1p-8 : 0;
  for (int64_t row = 0; row < rows; ++row) {
    a.delta.push_back(0), a.delta_error.push_back(0);
    if (!c.takes_part(row)) continue;
    const double *q = &c.q[row * c.E], *d_o = &c.d_o[row * c.E], *o = &c.o[row * c.E];
    double delta = -c.d_lse[row], delta_size = std::fabs(c.d_lse[row]);
    for (int e = 0; e < c.E; ++e) delta += d_o[e] * o[e], delta_size += std::fabs(d_o[e] * o[e]);
    a.delta.back() = delta, a.delta_error.back() = 1e-6 * delta_size;
    for (int64_t t = 0; t < c.n_k; ++t) {
      const double mask = c.mask_kind == MaskKind::none ? 0 : c.mask[row * c.n_k + t];
      if (!c.visible(row % c.L, t) || mask == -INFINITY) continue;
      const double *k = &c.k[t * c.E], *v = &c.v[t * c.E];
      double s = 0, size = std::fabs(mask), dp = 0, dp_size = 0, slope = 1;
      for (int e = 0; e < c.E; ++e) {
        s += c.scale * q[e] * k[e], size += std::fabs(c.scale * q[e] * k[e]);
        dp += d_o[e] * v[e], dp_size += std::fabs(d_o[e] * v[e]);
      }
      if (c.softcap > 0) {
        const double capped = std::tanh(s / c.softcap);
        s = c.softcap * capped, slope = 1 - capped * capped;
      }
      const double p = std::exp(s + mask - c.lse[row]);
      const double p_error = p * (2e-6 + 0x1p-22 * size + 0x1p-23 * std::fabs(c.lse[row]));
      const double ds = p * (dp - delta) * slope;
      // Near its limits the slope is a difference of rounded numbers.
      const double slope_error = c.softcap > 0 ? 0x1p-22 * (1 + size / c.softcap) : 0;
      const double ds_error = p_error * std::fabs(dp - delta) + p * slope_error * std::fabs(dp - delta) +
                              p * (kSum * dp_size + 1e-6 * delta_size) + factor_rounding * std::fabs(ds);
      for (int e = 0; e < c.E; ++e) {
        const auto accumulate = [](Gradient& to, int64_t at, double factor, double error, double x) {
          to.value[at] += factor * x;
          to.error[at] += (error + kSum * std::fabs(factor)) * std::fabs(x);
        };
        const double scale = c.scale, size = std::fabs(scale);
        accumulate(a.dq, row * c.E + e, ds * scale, ds_error * size, k[e]);
        accumulate(a.dk, t * c.E + e, ds * scale, ds_error * size, q[e]);
        accumulate(a.dv, t * c.E + e, p, p_error + factor_rounding * p, d_o[e]);
      }
    }
  }
  for (Gradient* gradient : {&a.dq, &a.dk, &a.dv}) round_error(c, *gradient);
  return a;
}

}  // namespace tiny_llm_ext::tests
