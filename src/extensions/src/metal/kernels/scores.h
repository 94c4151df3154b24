// The arithmetic of one score and of the end of a row, the same in every fast kernel.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/mask.h"
#include "metal/kernels/visibility.h"

namespace tiny_llm_ext {

inline float capped(float score, constant FastAttentionArguments& args) {
  return has_softcap ? args.softcap * metal::tanh(score / args.softcap) : score;
}

// What the exponential subtracts. Where nothing was visible yet, -inf - -inf would be NaN.
inline float subtrahend(float m) { return m == -INFINITY ? 0.0f : m; }

// A sink is a score without a value: it joins the sum l of the weights alone. Returns by what the output has
// to be multiplied, since the maximum m may rise.
inline float add_sink(thread float& m, thread float& l, float sink) {
  const float top = metal::max(m, sink);
  const float base = subtrahend(top);
  const float alpha = metal::exp(m - base);
  l = alpha * l + metal::exp(sink - base);
  m = top;
  return alpha;
}

// A column of the output, from its sum of values. A row without keys gives 0.
inline float divided(float column, float l, float inverse) { return l == 0.0f ? 0.0f : column * inverse; }

}  // namespace tiny_llm_ext
