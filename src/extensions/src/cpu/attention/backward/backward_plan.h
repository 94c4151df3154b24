// Which passes compute a gradient on the CPU.
#pragma once

#include <vector>

#include "attention/problem.h"

namespace tiny_llm_ext::cpu {

// `one_pass` computes dQ, dK and dV together: a task has all rows and keys of a KV head of a sequence.
// `two_passes` has smaller tasks, rows for dQ and then keys for dK and dV, but computes S and dP in both. The
// bits are the same.
enum class BackwardSchedule { two_passes, one_pass };

const char* name_of(BackwardSchedule schedule);  // as in Explanation

struct BackwardPlan {
  BackwardSchedule schedule;
  std::vector<int64_t> order;  // of one pass: the sequences, longest first; empty if all are equal
};

// If all three gradients are wanted. The schedule depends on the number of threads and on the shape of the
// arrays, of packed sequences also on their lengths.
BackwardPlan make_backward_plan(const Problem& problem);

}  // namespace tiny_llm_ext::cpu
