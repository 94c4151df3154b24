// Merges the partial results of a split sequence (the "combine" of split-K).
#pragma once

#include <cstdint>

namespace tiny_llm_ext::cpu {

// Writes the output of one query row to `o` and returns its natural log-sum-exp. The `chunks` partial results
// are merged in order; each is E + 2 floats (O before the division, m, l), `chunk_stride` floats from one to
// the next. `sink` may be null.
float merge_row(const float* partials, int64_t chunk_stride, int64_t chunks, int32_t E, const float* sink,
                float* o);

}  // namespace tiny_llm_ext::cpu
