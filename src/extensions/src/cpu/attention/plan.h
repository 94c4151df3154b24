// How the CPU cuts a problem into tasks: which rows, and for few rows and many keys which chunk of the keys.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

// The keys of a split sequence are cut into chunks counted from logical key 0; those that some row sees are
// first_chunk .. first_chunk + chunks - 1. One chunk: not split.
//
// This depends on the sequence's own lengths only, and so do the bits of its rows: not on its neighbours, on
// padding or on the number of threads.
struct SequencePlan {
  Sequence sequence;
  int64_t first_chunk, chunks, chunk_keys;
  int64_t partial_offset;  // in floats, of its share of the partial results
};

// Multiply-adds of the scores; those of the output are as many again.
inline constexpr ParallelThreshold kAttentionThreshold = {50e3, 200e3};

struct Plan {
  std::vector<SequencePlan> sequences;  // one where all are of full length, else one per batch entry
  bool split;                           // a sequence of full length is split: what explain() calls the path
  int64_t splits;                       // most chunks of any sequence
  int64_t partial_floats;               // workspace: [chunk][row][E + 2] of every split KV head
  int64_t partial_stride;               // in floats, from batch entry to batch entry of the same plan
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

// On one thread where there is less work than `least_shared_work`.
Plan make_plan(const Problem& problem, double least_shared_work = kAttentionThreshold.sleeping);

}  // namespace tiny_llm_ext::cpu
