// The online softmax, with chunks in place of key tiles.
#include "cpu/attention/merge.h"

#include <algorithm>
#include <cmath>

#include "cpu/attention/softmax_state.h"

namespace tiny_llm_ext::cpu {

float merge_row(const float* partials, int64_t chunk_stride, int64_t chunks, int32_t E, const float* sink,
                float* o) {
  float m = -INFINITY, l = 0;
  for (int64_t c = 0; c < chunks; c++) m = std::max(m, partials[c * chunk_stride + E]);

  std::fill(o, o + E, 0.0f);
  for (int64_t c = 0; c < chunks; c++) {
    const float* partial = partials + c * chunk_stride;
    if (partial[E + 1] == 0) continue;  // saw no key
    const float weight = std::exp2(exponent_between(partial[E], m));
    l += weight * partial[E + 1];
    for (int32_t e = 0; e < E; e++) o[e] += weight * partial[e];
  }
  const float factor = sink ? add_sink(*sink, &m, &l) : 1;
  for (int32_t e = 0; e < E; e++) o[e] *= l == 0 ? 0 : factor / l;
  return log_sum_exp(m, l);
}

}  // namespace tiny_llm_ext::cpu
