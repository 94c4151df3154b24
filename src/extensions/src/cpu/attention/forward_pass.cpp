// Cuts a forward pass into tasks, runs them, and merges the partial results of split sequences.
#include "cpu/attention/forward_pass.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string_view>

#include "attention/last_run.h"
#include "attention/lengths.h"
#include "attention/tiles.h"
#include "core/divide_up.h"
#include "core/strides.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/attention/layout/store_row.h"
#include "cpu/attention/merge.h"
#include "cpu/attention/plan.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

#define TINY_LLM_SUPPORT(backend, pass, dtype, smallest, largest)                 \
  static_assert(std::string_view(#backend) != "cpu" || (largest) <= kMaxHeadSize, \
                "arrays of the kernels have this size");
#include "attention/support.def"
#undef TINY_LLM_SUPPORT

// Lives on the worker thread of the stream.
class ForwardPass {
 public:
  ForwardPass(const ForwardOperands& operands, const Problem& problem, const PageTables* pages,
              const std::optional<mx::array>& mask, const std::optional<mx::array>& sinks)
      : problem_(problem),
        pages_(pages),
        plan_(make_plan(problem, kAttentionThreshold.now())),
        batch_(operands.batch),
        q_(operands.q),
        k_(operands.k),
        v_(operands.v),
        o_(operands.o),
        lse_(operands.lse),
        mask_(mask, problem.mask),
        sinks_(gather_sinks(sinks)) {}

  void run() {
    std::optional<mx::allocator::Data> partials;
    if (plan_.partial_floats > 0) {
      partials.emplace(allocate(bytes_of({plan_.partial_floats, sizeof(float)})));
      partials_ = static_cast<float*>(partials->buffer().raw_ptr());
    }
    std::atomic<int64_t> visited = 0;
    // A single position is bound by memory: a thread takes a range of tasks, so that each can prefetch the
    // keys of the next one.
    const Operation operation("attention");
    const auto parallel = plan_.single_positions ? parallel_ranges : parallel_for;
    parallel(plan_.task_count, plan_.threads, [&](int64_t n) { visited += run_task(n, plan_.task(n)); });
    if (plan_.partial_floats > 0) merge();
    int64_t total = total_tiles(problem_, problem_.Hkv, kernel().row_tile, kernel().key_tile);
    record_run(
        {path_of(plan_.schedule), visited, total, plan_.splits, problem_.kernels->name, plan_.threads});
  }

 private:
  const AttentionKernels& kernels() const {
    return problem_.kernels->attention[static_cast<int>(problem_.dtype)];
  }
  const PassKernel<ForwardTask>& kernel() const { return kernels().forward; }

  // [batch entry][head]
  std::vector<float> gather_sinks(const std::optional<mx::array>& sinks) const {
    std::vector<float> gathered;
    if (!sinks) return gathered;
    mx::Strides strides = broadcast_strides(*sinks);
    int64_t head_stride = strides.back();
    strides.pop_back();
    gathered.reserve(problem_.B * problem_.Hq);
    for (int64_t b = 0; b < problem_.B; b++) {
      const float* row = sinks->data<float>() + batch_offset(b, batch_, strides);
      for (int64_t h = 0; h < problem_.Hq; h++) gathered.push_back(row[h * head_stride]);
    }
    return gathered;
  }

  const float* sinks(int64_t entry, int64_t head) const {
    return sinks_.empty() ? nullptr : sinks_.data() + entry * problem_.Hq + head;
  }

  float* partial(const SequencePlan& plan, int64_t kv_head, int64_t chunk, int64_t row) const {
    int64_t rows = plan.sequence.n_q * problem_.gqa_heads();
    return partials_ + plan.partial_offset +
           ((kv_head * plan.chunks + chunk) * rows + row) * (problem_.E + 2);
  }

  // The keys of a chunk that the rows see, from the first key of a tile on.
  KeyRange keys_of(const SequencePlan& plan, int64_t row_begin, int64_t row_end, int64_t chunk) const {
    const Sequence& sequence = plan.sequence;
    const int64_t gqa_heads = problem_.gqa_heads(), key_tile = kernel().key_tile;
    KeyRange keys = visible_keys(row_begin / gqa_heads, (row_end - 1) / gqa_heads, sequence.n_q, sequence.n_k,
                                 problem_.left, problem_.right);
    if (plan.chunks > 1) {
      int64_t chunk_begin = (plan.first_chunk + chunk) * plan.chunk_keys;
      keys = {std::max(keys.begin, chunk_begin), std::min(keys.end, chunk_begin + plan.chunk_keys)};
    }
    keys.begin = keys.begin / key_tile * key_tile;
    return keys.end > keys.begin ? keys : KeyRange{0, 0};
  }

  // For a task of a single position: the keys of the next task, if that has a single position too.
  void add_next_keys(int64_t n, ForwardTask& task) const {
    if (task.n_q != 1 || n + 1 == plan_.task_count) return;
    const PlannedTask next = plan_.task(n + 1);
    const Sequence& sequence = next.plan.sequence;
    if (sequence.n_q != 1) return;
    const KeyRange keys = keys_of(next.plan, 0, problem_.gqa_heads(), next.chunk);
    task.next_begin = keys.begin;
    task.next_end = keys.end;
    if (pages_) {
      task.next_k = k_.at(0, next.kv_head, 0);
      task.next_v = v_.at(0, next.kv_head, 0);
      task.next_ids = pages_->table(sequence, problem_.left, k_, v_).ids;
    } else {
      task.next_k = k_.at(sequence.entry, next.kv_head, sequence.k_begin);
      task.next_v = v_.at(sequence.entry, next.kv_head, sequence.k_begin);
    }
  }

  int64_t run_task(int64_t n, const PlannedTask& planned) {
    const SequencePlan& plan = planned.plan;
    const Sequence& sequence = plan.sequence;
    const bool split = plan.chunks > 1;
    const int64_t gqa_heads = problem_.gqa_heads(), kv_head = planned.kv_head, head = kv_head * gqa_heads;
    const int64_t row_begin = planned.row_block * plan_.task_rows;
    const int64_t row_end =
        std::min(row_begin + plan_.task_rows, (split ? sequence.n_q : sequence.q_rows) * gqa_heads);

    const KeyRange keys = keys_of(plan, row_begin, row_end, planned.chunk);
    ForwardTask task = {};
    task.q = q_.at(sequence.entry, head, sequence.q_begin);
    task.q_head_stride = q_.head_stride();
    task.q_row_stride = q_.row_stride();
    if (pages_) {
      task.k = k_.at(0, kv_head, 0);
      task.v = v_.at(0, kv_head, 0);
      task.pages = pages_->table(sequence, problem_.left, k_, v_);
    } else {
      task.k = k_.at(sequence.entry, kv_head, sequence.k_begin);
      task.v = v_.at(sequence.entry, kv_head, sequence.k_begin);
    }
    task.mask = mask_.view(sequence.entry, batch_, head, sequence.k_begin);
    task.k_row_stride = k_.row_stride();
    task.v_row_stride = v_.row_stride();
    task.sinks = sinks(sequence.entry, head);
    task.o = o_.at(sequence.entry, head, sequence.q_begin);
    task.o_head_stride = o_.head_stride();
    task.o_row_stride = o_.row_stride();
    task.lse = reinterpret_cast<float*>(lse_.at(sequence.entry, head, sequence.q_begin));
    task.lse_head_stride = lse_.head_stride();
    task.lse_row_stride = lse_.row_stride();
    task.partial = split ? partial(plan, kv_head, planned.chunk, row_begin) : nullptr;
    task.E = static_cast<int32_t>(problem_.E);
    task.gqa_heads = static_cast<int32_t>(gqa_heads);
    task.row_begin = row_begin;
    task.row_end = row_end;
    task.n_q = sequence.n_q;
    task.n_k = sequence.n_k;
    task.left = problem_.left;
    task.right = problem_.right;
    task.key_begin = keys.begin;
    task.key_end = keys.end;
    task.scale = problem_.scale;
    task.softcap = problem_.softcap;
    task.fixed_order = problem_.kernels->batch_invariant;
    task.kv_heads = static_cast<int32_t>(planned.kv_heads);
    task.k_head_stride = k_.head_stride();
    task.v_head_stride = v_.head_stride();
    task.partial_head_stride = plan.chunks * sequence.n_q * gqa_heads * (problem_.E + 2);
    add_next_keys(n, task);
    task.keys_outside = plan_.schedule == Schedule::v1;
    const int64_t rows = row_end - row_begin, row_tile = kernel().row_tile;
    if (!task.keys_outside) {
      return kernel().run(
          task, thread_scratch(kernel().scratch_bytes(
                    task.E, planned.kv_heads > 1 ? planned.kv_heads * round_up(rows, row_tile) : rows)));
    }
    // The results of all rows are freed again: a thread keeps its scratch.
    const size_t bytes = kernels().keys_outside_scratch_bytes(task.E, rows);
    const mx::allocator::Data state = allocate(static_cast<int64_t>(bytes) + kCacheLine);
    const auto address = reinterpret_cast<uintptr_t>(state.buffer().raw_ptr());
    return kernel().run(task, reinterpret_cast<void*>(round_up(address, kCacheLine)));
  }

  // All heads of all split sequences, shared by all threads: one of them alone would fetch the partial
  // results from the caches of the others for longer than a region takes.
  void merge() {
    std::vector<SequencePlan> split;
    for (int64_t n = 0; n < plan_.sequence_count; n++)
      if (SequencePlan plan = plan_.sequence(n); plan.chunks > 1) split.push_back(plan);
    parallel_for(static_cast<int64_t>(split.size()) * problem_.Hq, plan_.threads,
                 [&](int64_t n) { merge_head(split[n / problem_.Hq], n % problem_.Hq); });
  }

  void merge_head(const SequencePlan& plan, int64_t head) {
    const Sequence& sequence = plan.sequence;
    int64_t gqa_heads = problem_.gqa_heads(), stride = sequence.n_q * gqa_heads * (problem_.E + 2);
    std::vector<float> row(problem_.E);
    for (int64_t i = 0; i < sequence.q_rows; i++) {
      auto* lse = reinterpret_cast<float*>(lse_.at(sequence.entry, head, sequence.q_begin + i));
      if (i < sequence.n_q) {
        *lse =
            merge_row(partial(plan, head / gqa_heads, 0, i * gqa_heads + head % gqa_heads), stride,
                      plan.chunks, static_cast<int32_t>(problem_.E), sinks(sequence.entry, head), row.data());
      } else {
        std::fill(row.begin(), row.end(), 0.0f);
        *lse = -std::numeric_limits<float>::infinity();
      }
      store_row(row, problem_.dtype, o_.at(sequence.entry, head, sequence.q_begin + i));
    }
  }

  const Problem& problem_;
  const PageTables* pages_;  // null if keys and values are not in pages
  Plan plan_;
  const mx::Shape& batch_;
  const HeadRows &q_, &k_, &v_, &o_, &lse_;
  MaskViews mask_;
  std::vector<float> sinks_;
  float* partials_ = nullptr;
};

}  // namespace

void run_forward(const ForwardOperands& operands, const Problem& problem, const PageTables* pages) {
  ForwardPass(operands, problem, pages, {}, {}).run();
}

void run_forward(const AttentionInputs& inputs, const Problem& problem, mx::array& o, mx::array& lse,
                 const PageTables* pages) {
  const mx::Shape batch = batch_shape(inputs), keys_batch = pages ? mx::Shape{1} : batch;
  const int threads = problem.threads.prompts, itemsize = problem.element_bytes();
  const DenseRows q(inputs.query, threads), k(inputs.key, threads), v(inputs.value, threads);
  const ForwardOperands operands = {batch,
                                    HeadRows::of(q, itemsize, batch),
                                    HeadRows::of(k, itemsize, keys_batch),
                                    HeadRows::of(v, itemsize, keys_batch),
                                    HeadRows::of(o, batch),
                                    HeadRows::of_lse(lse, batch)};
  ForwardPass(operands, problem, pages, inputs.mask, inputs.sinks).run();
}

}  // namespace tiny_llm_ext::cpu
