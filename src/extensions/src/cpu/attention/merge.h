// Joins the partial results that the chunks of a split key range left behind.
#pragma once

#include <cstdint>

namespace tiny_llm_ext::cpu {

// The output of one query row from its `chunks` partial results, each E + 2 floats (O before the division, m,
// l) and `chunk_stride` floats apart, taken in that order. `sink` may be null. Returns the natural
// log-sum-exp.
float merge_row(const float* partials, int64_t chunk_stride, int64_t chunks, int32_t E, const float* sink,
                float* o);

}  // namespace tiny_llm_ext::cpu
