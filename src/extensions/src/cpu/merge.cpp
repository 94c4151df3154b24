// The merge is the online softmax once more, with a chunk in the place of a tile.
#include "cpu/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace tiny_llm_ext::cpu {

float merge_row(const float* partials, int64_t chunk_stride, int64_t chunks, int32_t E, const float* sink,
                float* o) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLog2e = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;

  float m = sink ? *sink * kLog2e : -kInfinity;
  for (int64_t c = 0; c < chunks; c++) m = std::max(m, partials[c * chunk_stride + E]);
  const float reference = m == -kInfinity ? 0 : m;

  float l = sink ? std::exp2(*sink * kLog2e - reference) : 0;
  std::fill(o, o + E, 0.0f);
  for (int64_t c = 0; c < chunks; c++) {
    const float* partial = partials + c * chunk_stride;
    const float weight = std::exp2(partial[E] - reference);
    l += weight * partial[E + 1];
    for (int32_t e = 0; e < E; e++) o[e] += weight * partial[e];
  }
  const float factor = l == 0 ? 0 : 1 / l;
  for (int32_t e = 0; e < E; e++) o[e] *= factor;
  return l == 0 ? -kInfinity : (reference + std::log2(l)) * kLn2;
}

}  // namespace tiny_llm_ext::cpu
