// The rules and constants of the plan.
#include "cpu/attention/plan.h"

#include <algorithm>

#include "attention/tiles.h"
#include "core/divide_up.h"
#include "core/saturating.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {
namespace {

// Sequences with more query positions than this have enough rows for all threads: their keys are not split.
constexpr int64_t kMaxSplitPositions = 64;

// Keys of a chunk, for every kRowsPerChunk rows. A chunk writes E + 2 floats per row and reads 2 E elements
// per key; with these numbers the writes are a few per cent.
constexpr int64_t kChunkKeys = 1024;
constexpr int64_t kRowsPerChunk = 64;

// With fewer tasks per thread, the other threads wait too long for the last task.
constexpr int64_t kTasksPerThread = 4;

const AttentionKernels& kernels_of(const Problem& problem) {
  return problem.kernels->attention[static_cast<int>(problem.dtype)];
}

SequencePlan plan_sequence(const Problem& problem, const Sequence& sequence) {
  SequencePlan plan = {sequence, 0, 1, kUnbounded, 0};
  if (sequence.n_q == 0 || sequence.n_q > kMaxSplitPositions) return plan;
  int64_t key_tile = kernels_of(problem).key_tile;
  int64_t chunk =
      kChunkKeys * divide_up(sequence.n_q * problem.gqa_heads(), kRowsPerChunk) / key_tile * key_tile;
  KeyRange keys = visible_keys(0, sequence.n_q - 1, sequence.n_q, sequence.n_k, problem.left, problem.right);
  if (keys.end - keys.begin <= chunk) return plan;
  plan.chunk_keys = chunk;
  plan.first_chunk = keys.begin / chunk;
  plan.chunks = (keys.end - 1) / chunk - plan.first_chunk + 1;
  return plan;
}

}  // namespace

Plan make_plan(const Problem& problem, double min_shared_work) {
  Plan plan = {};
  double work = 0;
  plan.split = plan_sequence(problem, {problem.L, 0, problem.S}).chunks > 1;
  plan.splits = 1;
  auto add = [&](const Sequence& lengths, int64_t entries) {
    SequencePlan& sequence = plan.sequences.emplace_back(plan_sequence(problem, lengths));
    work += static_cast<double>(lengths.n_q) * lengths.n_k * problem.Hq * problem.E * entries;
    if (sequence.chunks == 1) return;
    sequence.partial_offset = plan.partial_floats;
    plan.partial_stride = saturating_product({sequence.chunks, lengths.n_q, problem.Hq, problem.E + 2});
    plan.partial_floats =
        saturating_sum(plan.partial_floats, saturating_product({plan.partial_stride, entries}));
    plan.splits = std::max(plan.splits, sequence.chunks);
  };
  if (problem.sequences.empty()) {
    add({problem.L, 0, problem.S}, problem.B);
  } else {
    plan.sequences.reserve(problem.B);
    for (const Sequence& lengths : problem.sequences) add(lengths, 1);
  }
  plan.threads = work < min_shared_work ? 1 : problem.threads;

  int64_t row_tile = kernels_of(problem).row_tile;
  auto tasks = [&](int64_t tiles) {
    return saturating_product(
        {problem.B, problem.Hkv, divide_up(problem.rows(), tiles * row_tile), plan.splits});
  };
  int64_t tiles = kernels_of(problem).tiles_per_task;
  while (tiles > 1 && plan.threads > 1 && tasks(tiles) < plan.threads * kTasksPerThread)
    tiles = (tiles + 1) / 2;
  plan.task_rows = tiles * row_tile;
  plan.row_blocks = divide_up(problem.rows(), plan.task_rows);
  return plan;
}

}  // namespace tiny_llm_ext::cpu
