// How the CPU cuts a problem into tasks: blocks of rows, and for few rows chunks of the keys (split-K).
#pragma once

#include <vector>

#include "attention/problem.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

// The order of the loops: `v2`, as in FlashAttention-2, has rows outside and keys inside; `split` also cuts
// the keys into chunks. `v1`, as in FlashAttention, has keys outside: one task for all rows of a KV head,
// whose state is in memory and passes through the caches once for each key tile.
enum class Schedule { v1, v2, split };

const char* name_of(Schedule schedule);  // as in Explanation
const char* path_of(Schedule schedule);

// The tasks of one sequence. The keys of a split sequence are cut into chunks, counted from logical key 0.
// Chunks first_chunk .. first_chunk + chunks - 1 hold visible keys; a sequence with one chunk is not split.
//
// The chunks depend on the sequence's own lengths only, not on other sequences, padding or the number of
// threads: the results are batch-invariant.
struct SequencePlan {
  Sequence sequence;
  int64_t first_chunk, chunks, chunk_keys;
  int64_t kv_heads;        // of one task, at most
  int64_t row_blocks;      // tasks along the rows of a KV head
  int64_t first_task;      // among the tasks of the plan
  int64_t partial_offset;  // of its partial results, in floats
};

struct PlannedTask {
  SequencePlan plan;
  int64_t kv_head, kv_heads;  // the first, and how many
  int64_t row_block, chunk;
};

// With fewer tasks per thread, the other threads wait too long for the last task.
inline constexpr int64_t kTasksPerThread = 4;

// In multiply-adds of the scores; the output takes as many again.
inline constexpr ParallelThreshold kAttentionThreshold = {50e3, 200e3};

struct Plan {
  Schedule schedule;
  int64_t sequence_count;
  int64_t splits;          // most chunks of any sequence
  int64_t partial_floats;  // workspace: [chunk][row][E + 2] of every split KV head
  int64_t task_rows;       // rows of one task
  int64_t Hkv;
  int64_t task_count;
  bool single_positions;  // no sequence has more than one query position
  int threads;

  // In the order of the tasks, which is not that of the batch.
  SequencePlan sequence(int64_t n) const;
  // Sequence by sequence, and head by head, so that keys stay in the processor's caches.
  PlannedTask task(int64_t n) const;

  std::vector<SequencePlan> sequences;  // one for all if they are equal
};

// Less work than `min_shared_work` gets one thread.
Plan make_plan(const Problem& problem, double min_shared_work = kAttentionThreshold.sleeping);

}  // namespace tiny_llm_ext::cpu
