// How the outputs of a product are dealt out to tasks.
#pragma once

#include <cstdint>

namespace tiny_llm_ext::cpu {

constexpr int kOutputUnit = 16;  // blocks of outputs that are multiples of this leave no lane idle

// Outputs of a task, at most `most`, such that the thread with the most tasks has the least to do; among
// equals the largest.
inline int64_t outputs_of_task(int64_t N, int64_t row_blocks, int threads, int64_t most) {
  int64_t best = most, least_work = INT64_MAX;
  for (int64_t outputs = most; outputs >= kOutputUnit; outputs -= kOutputUnit) {
    const int64_t work = divide_up(divide_up(N, outputs) * row_blocks, threads) * outputs;
    if (work < least_work) least_work = work, best = outputs;
  }
  return best;
}

}  // namespace tiny_llm_ext::cpu
