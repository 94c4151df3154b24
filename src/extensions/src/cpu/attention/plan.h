// How the CPU cuts a problem into tasks: blocks of rows, and for few rows chunks of the keys (split-K).
#pragma once

#include <vector>

#include "attention/problem.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

// The keys of a split sequence are cut into chunks, counted from logical key 0. Chunks first_chunk ..
// first_chunk + chunks - 1 hold visible keys; a sequence with one chunk is not split.
//
// This depends on the sequence's own lengths only, not on other sequences, padding or the number of threads:
// the results are batch-invariant.
struct SequencePlan {
  Sequence sequence;
  int64_t first_chunk, chunks, chunk_keys;
  int64_t partial_offset;  // of its partial results, in floats
};

// In multiply-adds of the scores; the output takes as many again.
inline constexpr ParallelThreshold kAttentionThreshold = {50e3, 200e3};

struct Plan {
  std::vector<SequencePlan> sequences;  // one if all have full length, else one per batch entry
  bool split;                           // whether a sequence of full length is split: the path of explain()
  int64_t splits;                       // most chunks of any sequence
  int64_t partial_floats;               // workspace: [chunk][row][E + 2] of every split KV head
  int64_t partial_stride;               // floats between batch entries that share a plan
  int64_t task_rows;                    // rows of one task
  int64_t row_blocks;                   // tasks along the rows of a KV head
  int threads;

  SequencePlan sequence(int64_t b) const {
    if (sequences.size() > 1) return sequences[b];
    SequencePlan same = sequences.front();
    same.partial_offset = b * partial_stride;
    return same;
  }
};

// Less work than `min_shared_work` gets one thread.
Plan make_plan(const Problem& problem, double min_shared_work = kAttentionThreshold.sleeping);

}  // namespace tiny_llm_ext::cpu
