// From raw scores and dP of a tile to P and dS.
#pragma once

#include "cpu/attention/backward/tile-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The query rows of a tile are its lanes, or its streamed rows.
enum class RowAxis { lanes, streamed };

struct LaneNumbers {
  alignas(64) float of[kTileLanes];
  constexpr LaneNumbers() : of() {
    for (int i = 0; i < kTileLanes; i++) of[i] = (float)i;
  }
};
static constexpr LaneNumbers kLaneNumbers;

template <RowAxis kRows>
struct ScoreTile {
  const RowStates& rows;
  const float* mask;  // [streamed][lanes], or null
  float scale, softcap;

  VEC_FN F of_row(const float* values, int streamed, int lane) {
    return kRows == RowAxis::lanes ? load(values + lane) : set1(values[streamed]);
  }
  inline __attribute__((always_inline)) M sees(int streamed, int lane) const {
    const F key = kRows == RowAxis::lanes ? set1((float)streamed) : load(kLaneNumbers.of + lane);
    return mask_and(less_equal(of_row(rows.first, streamed, lane), key),
                    less_equal(key, of_row(rows.last, streamed, lane)));
  }
};

struct ScoreGradient {
  F p, ds;
};

// `plain`: the scores are q.k times a positive scale. `large`: these, and some |LSE| exceeds kRoundedLimit.
enum class ScoreKind { plain, large, any };

// log2(P), with the rounding of the forward pass, or P would not be at most 1 for large scores.
template <ScoreKind kKind, RowAxis kRows>
VEC_FN F log2_of_p(const ScoreTile<kRows>& tile, int streamed, int lane, F s, F x) {
  const auto of_row = [&](const float* values) __attribute__((always_inline)) {
    return ScoreTile<kRows>::of_row(values, streamed, lane);
  };
  const F factor = set1(kKind == ScoreKind::any ? kLog2e : tile.scale * kLog2e);
  const F near = sub(fma(kKind == ScoreKind::any ? x : s, factor, sub(zero(), of_row(tile.rows.log2_high))),
                     of_row(tile.rows.log2_low));
  if constexpr (kKind == ScoreKind::plain) return near;
  const F lse = of_row(tile.rows.lse);
  return select(less_equal(abs(lse), set1(kRoundedLimit)), near, mul(sub(x, lse), set1(kLog2e)));
}

// P = exp(score - LSE), and dS = P * (dP - D) with respect to the product of q and k times the scale. Both
// are 0 where the row does not see the key, also if the key's value or the row's LSE is NaN.
template <ScoreKind kKind, bool kLimited, RowAxis kRows>
VEC_FN ScoreGradient score_gradient(const ScoreTile<kRows>& tile, int streamed, int lane, int lanes, F s,
                                    F dp) {
  F slope = set1(1), x = s, bias = zero();
  if constexpr (kKind != ScoreKind::plain) x = mul(s, set1(tile.scale));
  if constexpr (kKind == ScoreKind::any) {
    if (tile.softcap != 0) {
      const F t = tanh(div(x, set1(tile.softcap)));
      x = mul(set1(tile.softcap), t);
      slope = sub(set1(1), mul(t, t));
    }
    if (tile.mask) {
      bias = load(tile.mask + streamed * lanes + lane);
      x = add(x, bias);
    }
  }
  const auto if_seen = [&](F y) __attribute__((always_inline)) {
    if constexpr (kLimited) y = select(tile.sees(streamed, lane), y, zero());
    if constexpr (kKind == ScoreKind::any) y = select(equal(bias, set1(-INFINITY)), zero(), y);
    return y;
  };
  const F p = if_seen(exp2(log2_of_p<kKind>(tile, streamed, lane, s, x)));
  const F ds = mul(p, sub(dp, ScoreTile<kRows>::of_row(tile.rows.delta, streamed, lane)));
  return {p, if_seen(kKind == ScoreKind::any ? mul(ds, slope) : ds)};
}

template <class Products, ScoreKind kKind, bool kLimited, RowAxis kRows>
static void score_gradients(const ScoreTile<kRows>& tile, int count, int lanes, float* s, float* dp) {
  for (int m = 0; m < count; m += 2)
    for (int lane = 0; lane < lanes; lane += kLanes) {
      float *s_at = s + m * lanes + lane, *dp_at = dp + m * lanes + lane;
      const ScoreGradient low =
          score_gradient<kKind, kLimited>(tile, m, lane, lanes, load(s_at), load(dp_at));
      ScoreGradient high = {zero(), zero()};
      if (m + 1 < count)
        high = score_gradient<kKind, kLimited>(tile, m + 1, lane, lanes, load(s_at + lanes),
                                               load(dp_at + lanes));
      if constexpr (kRows == RowAxis::streamed) Products::store_factors(s + lane, lanes, m, low.p, high.p);
      Products::store_factors(dp + lane, lanes, m, low.ds, high.ds);
    }
  for (int lane = 0; lane < lanes; lane += kLanes) {
    if constexpr (kRows == RowAxis::streamed) Products::end_factors(s + lane, lanes, count);
    Products::end_factors(dp + lane, lanes, count);
  }
}

// S becomes P (where rows are streamed) and dP becomes dS, each as a factor of a product over the streamed
// axis. With `limited` some row does not see some key of the tile.
template <class Products, RowAxis kRows>
static void score_gradients(const ScoreTile<kRows>& tile, bool limited, int count, int lanes, float* s,
                            float* dp) {
  const auto run = [&]<ScoreKind kKind>() __attribute__((always_inline)) {
    if (limited) return score_gradients<Products, kKind, true>(tile, count, lanes, s, dp);
    score_gradients<Products, kKind, false>(tile, count, lanes, s, dp);
  };
  const bool plain = tile.softcap == 0 && !tile.mask && tile.scale > 0 && tile.scale * kLog2e <= kMaxFloat;
  if (!plain) return run.template operator()<ScoreKind::any>();
  if (tile.rows.large) return run.template operator()<ScoreKind::large>();
  run.template operator()<ScoreKind::plain>();
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
