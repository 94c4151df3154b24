// The arithmetic of a score and of the final division, shared by the fast kernels.
#pragma once

#include <metal_stdlib>

#include "metal/kernels/mask.h"
#include "metal/kernels/place.h"

namespace tiny_llm_ext {

inline float capped(float score, constant FastAttentionArguments& args) {
  return has_softcap ? args.softcap * metal::tanh(score / args.softcap) : score;
}

// The maximum that the exponential subtracts; 0 while no key was visible, because -inf - -inf would be NaN.
inline float subtrahend(float m) { return m == -INFINITY ? 0.0f : m; }

// The weight of the first score of a row: 1, or 0 if it is hidden.
inline float first_weight(float score) { return metal::exp(score - subtrahend(score)); }

// A column of the output, from its sum of weighted values and 1 / l. A row without keys gives 0.
inline float divided(float column, float l, float inverse) { return l == 0.0f ? 0.0f : column * inverse; }

}  // namespace tiny_llm_ext
