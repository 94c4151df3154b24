// Cuts a forward pass into tasks, runs them, and merges the partial results of split sequences.
#include "cpu/attention/forward_pass.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string_view>

#include "attention/last_run.h"
#include "attention/lengths.h"
#include "attention/tiles.h"
#include "core/strides.h"
#include "cpu/attention/merge.h"
#include "cpu/attention/plan.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/allocate.h"
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
  ForwardPass(const AttentionInputs& inputs, const Problem& problem, const PageTables* pages, mx::array& o,
              mx::array& lse)
      : problem_(problem),
        pages_(pages),
        plan_(make_plan(problem, kAttentionThreshold.now())),
        batch_(batch_shape(inputs)),
        q_(inputs.query, plan_.threads),
        k_(inputs.key, plan_.threads),
        v_(inputs.value, plan_.threads),
        mask_(inputs.mask, problem.mask),
        sinks_(gather_sinks(inputs.sinks)),
        o_(o.data<std::byte>()),
        o_strides_(o.strides()),
        lse_(lse.data<float>()) {}

  void run() {
    std::optional<mx::allocator::Data> partials;
    if (plan_.partial_floats > 0) {
      partials.emplace(allocate(bytes_of({plan_.partial_floats, sizeof(float)})));
      partials_ = static_cast<float*>(partials->buffer().raw_ptr());
    }
    std::atomic<int64_t> visited = 0;
    int64_t heads = problem_.B * problem_.Hkv;
    int64_t tasks_per_head = plan_.row_blocks * plan_.splits;
    // Head by head, so that keys stay in the processor's caches. Within a head the last rows go first: in
    // causal attention they see the most keys, and short tasks at the end balance the threads. A single
    // position is bound by memory: a thread takes a range of tasks, so that each can prefetch the keys of the
    // next one.
    const auto parallel = problem_.L == 1 ? parallel_ranges : parallel_for;
    parallel(heads * tasks_per_head, plan_.threads, [&](int64_t item) {
      int64_t head = item / tasks_per_head, task = item % tasks_per_head;
      int64_t block = plan_.row_blocks - 1 - task / plan_.splits;
      visited += run_task(head, block, task % plan_.splits);
    });
    if (partials_) {
      parallel_for(problem_.B * problem_.Hq, plan_.threads,
                   [&](int64_t item) { merge_head(item / problem_.Hq, item % problem_.Hq); });
    }
    int64_t total = heads * total_tiles(problem_.rows(), problem_.S, kernels().row_tile, kernels().key_tile);
    record_run({plan_.split ? "cpu.split" : "cpu.tiled", visited, total, plan_.splits, problem_.kernels->name,
                plan_.threads});
  }

 private:
  const AttentionKernels& kernels() const {
    return problem_.kernels->attention[static_cast<int>(problem_.dtype)];
  }

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

  const std::byte* input(const DenseRows& rows, int64_t b, int64_t head, int64_t row) const {
    mx::Strides batch_strides(rows.strides().begin(), rows.strides().end() - 3);
    return rows.at(batch_offset(b, batch_, batch_strides) + head * rows.stride(3) + row * rows.stride(2));
  }

  float* partial(const SequencePlan& plan, int64_t kv_head, int64_t chunk, int64_t row) const {
    int64_t rows = plan.sequence.n_q * problem_.gqa_heads();
    return partials_ + plan.partial_offset +
           ((kv_head * plan.chunks + chunk) * rows + row) * (problem_.E + 2);
  }

  int64_t output_stride(int axis_from_right) const { return o_strides_[o_strides_.size() - axis_from_right]; }
  std::byte* output(int64_t b, int64_t head) const {
    mx::Strides batch_strides(o_strides_.begin(), o_strides_.end() - 3);
    return o_ + (batch_offset(b, batch_, batch_strides) + head * output_stride(3)) * problem_.element_bytes();
  }
  float* lse_row(int64_t b, int64_t head) const { return lse_ + (b * problem_.Hq + head) * problem_.L; }

  // The keys of a chunk that the rows see, from the first key of a tile on.
  KeyRange keys_of(const SequencePlan& plan, int64_t row_begin, int64_t row_end, int64_t chunk) const {
    const Sequence& sequence = plan.sequence;
    const int64_t gqa_heads = problem_.gqa_heads(), key_tile = kernels().key_tile;
    KeyRange keys = visible_keys(row_begin / gqa_heads, (row_end - 1) / gqa_heads, sequence.n_q, sequence.n_k,
                                 problem_.left, problem_.right);
    if (plan.chunks > 1) {
      int64_t chunk_begin = (plan.first_chunk + chunk) * plan.chunk_keys;
      keys = {std::max(keys.begin, chunk_begin), std::min(keys.end, chunk_begin + plan.chunk_keys)};
    }
    keys.begin = keys.begin / key_tile * key_tile;
    return keys.end > keys.begin ? keys : KeyRange{0, 0};
  }

  // For a single position: the first keys of the next chunk, or of the next head after the last chunk.
  const void* next_keys(int64_t head, int64_t chunk) const {
    if (pages_ || problem_.L > 1) return nullptr;
    if (++chunk >= plan_.sequence(head / problem_.Hkv).chunks) {
      chunk = 0;
      if (++head == problem_.B * problem_.Hkv) return nullptr;
    }
    const SequencePlan plan = plan_.sequence(head / problem_.Hkv);
    const KeyRange keys = keys_of(plan, 0, problem_.gqa_heads(), chunk);
    return input(k_, head / problem_.Hkv, head % problem_.Hkv, plan.sequence.kv_start + keys.begin);
  }

  int64_t run_task(int64_t flat_head, int64_t block, int64_t chunk) {
    const int64_t b = flat_head / problem_.Hkv, kv_head = flat_head % problem_.Hkv;
    const SequencePlan plan = plan_.sequence(b);
    const Sequence& sequence = plan.sequence;
    if (chunk >= plan.chunks) return 0;
    bool split = plan.chunks > 1;
    int64_t gqa_heads = problem_.gqa_heads(), head = kv_head * gqa_heads;
    int64_t row_begin = block * plan_.task_rows;
    int64_t row_end =
        std::min(row_begin + plan_.task_rows, split ? sequence.n_q * gqa_heads : problem_.rows());
    if (row_begin >= row_end) return 0;

    const KeyRange keys = keys_of(plan, row_begin, row_end, chunk);
    ForwardTask task = {};
    task.q = input(q_, b, head, 0);
    task.q_head_stride = q_.stride(3);
    task.q_row_stride = q_.stride(2);
    if (pages_) {
      task.k = k_.at(kv_head * k_.stride(3));
      task.v = v_.at(kv_head * v_.stride(3));
      task.pages = pages_->table(b, k_, v_);
      task.mask = pages_->mask(b);
    } else {
      task.k = input(k_, b, kv_head, sequence.kv_start);
      task.v = input(v_, b, kv_head, sequence.kv_start);
      task.mask = mask_.view(b, batch_, head, sequence.kv_start);
    }
    task.k_row_stride = k_.stride(2);
    task.v_row_stride = v_.stride(2);
    task.sinks = sinks_.empty() ? nullptr : sinks_.data() + b * problem_.Hq + head;
    task.o = output(b, head);
    task.o_head_stride = output_stride(3);
    task.o_row_stride = output_stride(2);
    task.lse = lse_row(b, head);
    task.lse_head_stride = problem_.L;
    task.partial = split ? partial(plan, kv_head, chunk, row_begin) : nullptr;
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
    task.next_k = next_keys(flat_head, chunk);
    void* scratch = thread_scratch(kernels().scratch_bytes(task.E, row_end - row_begin));
    return kernels().forward(task, scratch);
  }

  void merge_head(int64_t b, int64_t head) {
    const SequencePlan plan = plan_.sequence(b);
    if (plan.chunks == 1) return;
    int64_t gqa_heads = problem_.gqa_heads(), stride = plan.sequence.n_q * gqa_heads * (problem_.E + 2);
    std::vector<float> row(problem_.E);
    for (int64_t i = 0; i < problem_.L; i++) {
      float& lse = lse_row(b, head)[i];
      if (i < plan.sequence.n_q) {
        const float* sink = sinks_.empty() ? nullptr : &sinks_[b * problem_.Hq + head];
        lse = merge_row(partial(plan, head / gqa_heads, 0, i * gqa_heads + head % gqa_heads), stride,
                        plan.chunks, static_cast<int32_t>(problem_.E), sink, row.data());
      } else {
        std::fill(row.begin(), row.end(), 0.0f);
        lse = -std::numeric_limits<float>::infinity();
      }
      store(row, output(b, head) + i * output_stride(2) * problem_.element_bytes());
    }
  }

  void store(const std::vector<float>& row, std::byte* to) const {
    switch (problem_.dtype) {
      case Element::f32:
        std::copy(row.begin(), row.end(), reinterpret_cast<float*>(to));
        break;
      case Element::f16:
        std::copy(row.begin(), row.end(), reinterpret_cast<mx::float16_t*>(to));
        break;
      case Element::bf16:
        std::copy(row.begin(), row.end(), reinterpret_cast<mx::bfloat16_t*>(to));
        break;
    }
  }

  const Problem& problem_;
  const PageTables* pages_;  // null if keys and values are not in pages
  Plan plan_;
  mx::Shape batch_;
  DenseRows q_, k_, v_;
  MaskViews mask_;
  std::vector<float> sinks_;
  std::byte* o_;
  mx::Strides o_strides_;
  float* lse_;
  float* partials_ = nullptr;
};

}  // namespace

void run_forward(const AttentionInputs& inputs, const Problem& problem, mx::array& o, mx::array& lse,
                 const PageTables* pages) {
  ForwardPass(inputs, problem, pages, o, lse).run();
}

}  // namespace tiny_llm_ext::cpu
