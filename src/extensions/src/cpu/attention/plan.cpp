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
// per key; with these numbers the writes are a few per cent. So few keys, because many threads share the few
// heads of a small model.
constexpr int64_t kChunkKeys = 128;
constexpr int64_t kRowsPerChunk = 8;
// Chunks of a sequence, about: each adds to the merge.
constexpr int64_t kMostChunks = 32;

const PassKernel<ForwardTask>& kernel_of(const Problem& problem) {
  return problem.kernels->attention[static_cast<int>(problem.dtype)].forward;
}

// Without the tasks and the place of the partial results.
SequencePlan plan_chunks(const Problem& problem, const Sequence& sequence) {
  SequencePlan plan = {};
  plan.sequence = sequence;
  plan.chunks = 1;
  plan.chunk_keys = kUnbounded;
  if (problem.keys_outside || sequence.n_q == 0 || sequence.n_q > kMaxSplitPositions) return plan;
  if (problem.kernels->batch_invariant) return plan;  // chunks depend on the number of query positions
  int64_t key_tile = kernel_of(problem).key_tile;
  const int64_t least =
      round_up(kChunkKeys * divide_up(sequence.n_q * problem.gqa_heads(), kRowsPerChunk), key_tile);
  KeyRange keys = visible_keys(0, sequence.n_q - 1, sequence.n_q, sequence.n_k, problem.left, problem.right);
  const int64_t chunk = least * std::max<int64_t>(1, divide_up(keys.end - keys.begin, least * kMostChunks));
  if (keys.end - keys.begin <= chunk) return plan;
  plan.chunk_keys = chunk;
  plan.first_chunk = keys.begin / chunk;
  plan.chunks = (keys.end - 1) / chunk - plan.first_chunk + 1;
  return plan;
}

int64_t partial_floats(const Problem& problem, const SequencePlan& plan) {
  if (plan.chunks == 1) return 0;
  return saturating_product({plan.chunks, plan.sequence.n_q, problem.Hq, problem.E + 2});
}

// Rows of a KV head that tasks compute: padding is left to the merge of a split sequence.
int64_t rows_of(const Problem& problem, const SequencePlan& plan) {
  return (plan.chunks > 1 ? plan.sequence.n_q : plan.sequence.q_rows) * problem.gqa_heads();
}

// KV heads that share a task, at most. A page holds all heads: a task that reads it for one head only leaves
// most of each stretch of memory to later tasks. Many rows compute for longer than their keys take to arrive.
int64_t shared_heads(const Problem& problem, const SequencePlan& plan) {
  const bool few_rows = rows_of(problem, plan) <= kernel_of(problem).row_tile;
  const bool together = problem.paged && problem.mask == MaskKind::none && few_rows && !problem.keys_outside;
  return together ? problem.Hkv : 1;
}

int64_t tasks_of(const Problem& problem, const SequencePlan& plan, int64_t task_rows) {
  return saturating_product(
      {divide_up(problem.Hkv, plan.kv_heads), divide_up(rows_of(problem, plan), task_rows), plan.chunks});
}

}  // namespace

const char* name_of(Schedule schedule) {
  return schedule == Schedule::split ? "split" : schedule == Schedule::v1 ? "v1" : "v2";
}
const char* path_of(Schedule schedule) { return schedule == Schedule::split ? "cpu.split" : "cpu.tiled"; }

SequencePlan Plan::sequence(int64_t n) const {
  if (sequences.size() == static_cast<size_t>(sequence_count)) return sequences[n];
  SequencePlan same = sequences.front();
  same.sequence.entry = same.sequence.index = n;
  same.partial_offset = partial_floats / sequence_count * n;
  same.first_task = task_count / sequence_count * n;
  return same;
}

PlannedTask Plan::task(int64_t n) const {
  int64_t number = 0;
  if (sequences.size() == static_cast<size_t>(sequence_count)) {
    const auto after = [](int64_t task, const SequencePlan& plan) { return task < plan.first_task; };
    number = std::upper_bound(sequences.begin(), sequences.end(), n, after) - sequences.begin() - 1;
  } else {
    number = n / (task_count / sequence_count);
  }
  const SequencePlan plan = sequence(number);
  const int64_t local = n - plan.first_task, per_head = plan.row_blocks * plan.chunks;
  // Within a head the last rows go first: in causal attention they see the most keys, and short tasks at the
  // end balance the threads.
  const int64_t row_block = plan.row_blocks - 1 - local % per_head / plan.chunks;
  const int64_t kv_head = local / per_head * plan.kv_heads;
  return {plan, kv_head, std::min(plan.kv_heads, Hkv - kv_head), row_block, local % plan.chunks};
}

Plan make_plan(const Problem& problem, double min_shared_work) {
  Plan plan = {};
  plan.Hkv = problem.Hkv;
  if (problem.sequences.empty()) {
    plan.sequence_count = problem.B;
    plan.sequences.push_back(plan_chunks(problem, problem.whole_entry(0)));
  } else {
    plan.sequence_count = static_cast<int64_t>(problem.sequences.size());
    for (const Sequence& sequence : problem.sequences)
      plan.sequences.push_back(plan_chunks(problem, sequence));
    // The longest tasks first: short ones at the end balance the threads.
    std::stable_sort(plan.sequences.begin(), plan.sequences.end(),
                     [](const auto& a, const auto& b) { return a.sequence.n_k > b.sequence.n_k; });
  }
  // How often each entry of `sequences` counts.
  const int64_t times = problem.sequences.empty() ? problem.B : 1;

  double work = 0;
  plan.splits = 1;
  plan.single_positions = true;
  for (SequencePlan& sequence : plan.sequences) {
    const Sequence& lengths = sequence.sequence;
    work += static_cast<double>(lengths.n_q) * lengths.n_k * problem.Hq * problem.E * times;
    plan.single_positions = plan.single_positions && lengths.n_q <= 1;
    plan.splits = std::max(plan.splits, sequence.chunks);
    sequence.kv_heads = shared_heads(problem, sequence);
    sequence.partial_offset = plan.partial_floats;
    plan.partial_floats =
        saturating_sum(plan.partial_floats, saturating_product({partial_floats(problem, sequence), times}));
  }
  plan.threads = work < min_shared_work ? 1 : problem.threads.of(plan.single_positions);
  // A rectangle's schedule depends on its shape only: explain() names it before lengths are known.
  const bool split =
      problem.packed ? plan.splits > 1 : plan_chunks(problem, problem.whole_entry(0)).chunks > 1;
  plan.schedule = problem.keys_outside ? Schedule::v1 : split ? Schedule::split : Schedule::v2;

  const auto count_tasks = [&](int64_t task_rows) {
    int64_t count = 0;
    for (const SequencePlan& sequence : plan.sequences) {
      count = saturating_sum(count, saturating_product({tasks_of(problem, sequence, task_rows), times}));
    }
    return count;
  };
  const int64_t row_tile = kernel_of(problem).row_tile;
  for (int64_t heads = problem.Hkv; heads > 1 && plan.threads > 1;) {
    if (count_tasks(row_tile) >= plan.threads * kTasksPerThread) break;
    heads = divide_up(heads, 2);
    for (SequencePlan& sequence : plan.sequences) sequence.kv_heads = std::min(sequence.kv_heads, heads);
  }
  int64_t tiles = kernel_of(problem).tiles_per_task;
  while (tiles > 1 && plan.threads > 1 && count_tasks(tiles * row_tile) < plan.threads * kTasksPerThread)
    tiles = (tiles + 1) / 2;
  plan.task_rows = tiles * row_tile;
  if (plan.schedule == Schedule::v1) {
    for (const SequencePlan& sequence : plan.sequences)
      plan.task_rows = std::max(plan.task_rows, rows_of(problem, sequence));
  }
  for (SequencePlan& sequence : plan.sequences) {
    sequence.row_blocks = divide_up(rows_of(problem, sequence), plan.task_rows);
    sequence.first_task = plan.task_count;
    plan.task_count = saturating_sum(
        plan.task_count, saturating_product({tasks_of(problem, sequence, plan.task_rows), times}));
  }
  return plan;
}

}  // namespace tiny_llm_ext::cpu
