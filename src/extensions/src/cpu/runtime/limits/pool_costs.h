// Measures what the thread pool costs without any work: a lower bound on the time of an operation.
#pragma once

namespace tiny_llm_ext::cpu {

// Medians, in seconds.
struct PoolCosts {
  double region;   // a parallel region in which every thread takes part, in a Team whose threads are awake
  double wake;     // the same outside a Team, after the threads of the pool fell asleep
  double barrier;  // of all threads, within a region
};

// Takes some tens of milliseconds. Throws an ArgumentError if this process may not use that many threads, and
// a std::runtime_error if they do not come, because other work has them.
PoolCosts pool_costs(int threads);

}  // namespace tiny_llm_ext::cpu
