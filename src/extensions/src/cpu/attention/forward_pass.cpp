// CPU evaluation: walks batch, KV heads, row blocks and key chunks by strides, and hands each task to the
// kernel.
#include <algorithm>
#include <atomic>
#include <limits>

#include "attention/inputs.h"
#include "attention/last_run.h"
#include "attention/tiles.h"
#include "core/checks.h"
#include "core/divide_up.h"
#include "core/strides.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/merge.h"
#include "cpu/attention/plan.h"
#include "cpu/kernels/kernels.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

using cpu::DenseRows;
using cpu::ForwardTask;
using cpu::SequencePlan;

// The mask as the caller laid it out, found by (batch entry, query head, key).
struct MaskWalk {
  const mx::array* mask = nullptr;
  MaskKind kind = MaskKind::none;
  mx::Strides batch_strides;
  int64_t head_stride = 0, row_stride = 0, key_stride = 0;

  MaskWalk(const std::optional<mx::array>& given, MaskKind mask_kind) {
    if (!given) return;
    mask = &*given;
    kind = mask_kind;
    mx::Strides strides = broadcast_strides(*mask);
    for (int64_t* stride : {&key_stride, &row_stride, &head_stride}) {
      if (strides.empty()) break;
      *stride = strides.back();
      strides.pop_back();
    }
    batch_strides = strides;
  }

  cpu::MaskView view(int64_t b, const mx::Shape& batch, int64_t head, int64_t key) const {
    if (!mask) return {};
    int64_t offset = batch_offset(b, batch, batch_strides) + head * head_stride + key * key_stride;
    return {mask->data<std::byte>() + offset * mask->itemsize(), kind, head_stride, row_stride, key_stride};
  }
};

// The page tables of the batch, and which keys the absent pages would have held.
class PagedKeys {
 public:
  PagedKeys(const mx::array& table, const mx::array& key_pages, const std::vector<Sequence>& sequences)
      : width_(table.shape(1)), count_(key_pages.shape(0)), size_(key_pages.shape(2)) {
    const int32_t* ids = table.data<int32_t>();
    for (int64_t b = 0; b < table.shape(0); b++) {
      for (int64_t i = 0; i < width_; i++) ids_.push_back(ids[b * table.strides(0) + i * table.strides(1)]);
      present_.push_back(find_present(ids_.data() + b * width_, divide_up(sequences[b].n_k, size_)));
    }
  }

  cpu::PageTable table(int64_t b, const DenseRows& k, const DenseRows& v) const {
    return {ids_.data() + b * width_, count_, size_, k.stride(4), v.stride(4)};
  }

  // Hides the keys of absent pages, where there are any.
  cpu::MaskView mask(int64_t b) const {
    if (present_[b].empty()) return {};
    return {present_[b].data(), MaskKind::boolean, 0, 0, 1};
  }

 private:
  // Of the keys in that many pages; nothing where all are present.
  std::vector<uint8_t> find_present(const int32_t* ids, int64_t pages) const {
    auto is_present = [this](int32_t id) { return 0 <= id && id < count_; };
    std::vector<uint8_t> present;
    if (std::all_of(ids, ids + pages, is_present)) return present;
    for (int64_t i = 0; i < pages; i++) present.insert(present.end(), size_, is_present(ids[i]));
    return present;
  }

  int64_t width_, count_, size_;
  std::vector<int32_t> ids_;                   // [sequence][width]
  std::vector<std::vector<uint8_t>> present_;  // of each key; empty: all are
};

// All of one forward pass. Lives on the worker thread of the stream while the inputs are there.
class Forward {
 public:
  Forward(const AttentionInputs& inputs, const Problem& problem, const PagedKeys* pages, mx::array& o,
          mx::array& lse)
      : problem_(problem),
        pages_(pages),
        plan_(cpu::make_plan(problem, cpu::kAttentionThreshold.now())),
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
      partials.emplace(cpu::allocate(cpu::bytes_of({plan_.partial_floats, sizeof(float)})));
      partials_ = static_cast<float*>(partials->buffer().raw_ptr());
    }
    std::atomic<int64_t> visited = 0;
    int64_t heads = problem_.B * problem_.Hkv;
    int64_t tasks_per_head = plan_.row_blocks * plan_.splits;
    // One head after the other, so that its keys stay in the caches. Within a head the last rows, which see
    // most when attention is causal, go first: what is left at the end is little. A single position waits
    // for keys: it may ask for those that come next, which a thread calculates itself as far as it can.
    const auto share_out = problem_.L == 1 ? cpu::parallel_ranges : cpu::parallel_for;
    share_out(heads * tasks_per_head, plan_.threads, [&](int64_t item) {
      int64_t head = item / tasks_per_head, task = item % tasks_per_head;
      int64_t block = plan_.row_blocks - 1 - task / plan_.splits;
      visited += run_task(head, block, task % plan_.splits);
    });
    if (partials_) {
      cpu::parallel_for(problem_.B * problem_.Hq, plan_.threads,
                        [&](int64_t item) { merge_head(item / problem_.Hq, item % problem_.Hq); });
    }
    int64_t total = heads * divide_up(problem_.rows(), kernels().row_tile[element()]) *
                    divide_up(problem_.S, kernels().key_tile[element()]);
    record_run({plan_.split ? "cpu.split" : "cpu.tiled", visited, total, plan_.splits, kernels().name,
                plan_.threads});
  }

 private:
  const cpu::Kernels& kernels() const { return *problem_.kernels; }
  int element() const { return static_cast<int>(problem_.dtype); }

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
    int64_t rows = plan.sequence.n_q * problem_.group();
    return partials_ + plan.partial_offset +
           ((kv_head * plan.chunks + chunk) * rows + row) * (problem_.E + 2);
  }

  int64_t output_stride(int axis_from_right) const { return o_strides_[o_strides_.size() - axis_from_right]; }
  std::byte* output(int64_t b, int64_t head) const {
    mx::Strides batch_strides(o_strides_.begin(), o_strides_.end() - 3);
    return o_ + (batch_offset(b, batch_, batch_strides) + head * output_stride(3)) * problem_.element_bytes();
  }
  float* log_sum(int64_t b, int64_t head) const { return lse_ + (b * problem_.Hq + head) * problem_.L; }

  // What those rows see of a chunk, from the first key of a tile on.
  KeyRange keys_of(const SequencePlan& plan, int64_t row_begin, int64_t row_end, int64_t chunk) const {
    const Sequence& sequence = plan.sequence;
    const int64_t group = problem_.group(), key_tile = kernels().key_tile[element()];
    KeyRange keys = visible_keys(row_begin / group, (row_end - 1) / group, sequence.n_q, sequence.n_k,
                                 problem_.left, problem_.right);
    if (plan.chunks > 1) {
      int64_t chunk_begin = (plan.first_chunk + chunk) * plan.chunk_keys;
      keys = {std::max(keys.begin, chunk_begin), std::min(keys.end, chunk_begin + plan.chunk_keys)};
    }
    keys.begin = keys.begin / key_tile * key_tile;
    return keys.end > keys.begin ? keys : KeyRange{0, 0};
  }

  // The first keys of the chunk behind this one, perhaps of the next head, where all have a single position.
  const void* keys_behind(int64_t head, int64_t chunk) const {
    if (pages_ || problem_.L > 1) return nullptr;
    if (++chunk >= plan_.sequence(head / problem_.Hkv).chunks) {
      chunk = 0;
      if (++head == problem_.B * problem_.Hkv) return nullptr;
    }
    const SequencePlan plan = plan_.sequence(head / problem_.Hkv);
    const KeyRange keys = keys_of(plan, 0, problem_.group(), chunk);
    return input(k_, head / problem_.Hkv, head % problem_.Hkv, plan.sequence.kv_start + keys.begin);
  }

  int64_t run_task(int64_t head_of_all, int64_t block, int64_t chunk) {
    const int64_t b = head_of_all / problem_.Hkv, kv_head = head_of_all % problem_.Hkv;
    const SequencePlan plan = plan_.sequence(b);
    const Sequence& sequence = plan.sequence;
    if (chunk >= plan.chunks) return 0;
    bool split = plan.chunks > 1;
    int64_t group = problem_.group(), head = kv_head * group;
    int64_t row_begin = block * plan_.task_rows;
    int64_t row_end = std::min(row_begin + plan_.task_rows, split ? sequence.n_q * group : problem_.rows());
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
    task.lse = log_sum(b, head);
    task.lse_head_stride = problem_.L;
    task.partial = split ? partial(plan, kv_head, chunk, row_begin) : nullptr;
    task.E = static_cast<int32_t>(problem_.E);
    task.group = static_cast<int32_t>(group);
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
    task.next_k = keys_behind(head_of_all, chunk);
    void* scratch = cpu::thread_scratch(kernels().scratch_bytes[element()](task.E, row_end - row_begin));
    return kernels().forward[element()](task, scratch);
  }

  void merge_head(int64_t b, int64_t head) {
    const SequencePlan plan = plan_.sequence(b);
    if (plan.chunks == 1) return;
    int64_t group = problem_.group(), stride = plan.sequence.n_q * group * (problem_.E + 2);
    std::vector<float> row(problem_.E);
    for (int64_t i = 0; i < problem_.L; i++) {
      float& lse = log_sum(b, head)[i];
      if (i < plan.sequence.n_q) {
        const float* sink = sinks_.empty() ? nullptr : &sinks_[b * problem_.Hq + head];
        lse = cpu::merge_row(partial(plan, head / group, 0, i * group + head % group), stride, plan.chunks,
                             static_cast<int32_t>(problem_.E), sink, row.data());
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
  const PagedKeys* pages_;  // null: keys and values lie as the queries do
  cpu::Plan plan_;
  mx::Shape batch_;
  DenseRows q_, k_, v_;
  MaskWalk mask_;
  std::vector<float> sinks_;
  std::byte* o_;
  mx::Strides o_strides_;
  float* lse_;
  float* partials_ = nullptr;
};

// (B * heads, L, ...) as (B, heads, L, ...), where it lies.
mx::array by_sequence(const mx::array& x, int heads) {
  mx::Shape shape = x.shape();
  mx::Strides strides = x.strides();
  shape[0] /= heads;
  shape.insert(shape.begin() + 1, heads);
  strides.insert(strides.begin(), strides[0] * heads);
  mx::array split(std::move(shape), x.dtype(), nullptr, {});
  split.copy_shared_buffer(x, strides, {false, false, false}, x.data_size());
  return split;
}

// Of the batch, as the lengths say; of none where none are given.
std::vector<Sequence> sequences_of(const AttentionInputs& call, mx::Stream stream) {
  if (!has_lengths(call)) return {};
  cpu::Arrays lengths;
  for (const auto& given : {call.q_lens, call.kv_start, call.kv_lens}) {
    if (given) lengths.push_back(*given);
  }
  cpu::wait_for(stream, lengths);
  return read_sequences(call, batch_shape(call), call.query.shape(-2), call.key.shape(-2),
                        failure_of(kFunction));
}

}  // namespace

void cpu::attend(const AttentionInputs& inputs, const Problem& problem, mx::array& o, mx::array& lse) {
  Forward(inputs, problem, nullptr, o, lse).run();
}

void Attention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  check_inputs(inputs);
  std::vector<Sequence> sequences = sequences_of(unpack(inputs, params_), stream());
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  AttentionInputs call = unpack(arrays, params);
                  Problem problem = make_problem(call, params, device);
                  problem.sequences = sequences;
                  cpu::attend(call, problem, results[0], results[1]);
                });
}

void PagedAttention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::wait_for(stream(), {inputs[4]});
  std::vector<Sequence> sequences = read_contexts(inputs, failure_of("paged_attention"));
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  AttentionInputs call{by_sequence(arrays[0], params.num_heads), arrays[1], arrays[2]};
                  mx::array o = by_sequence(results[0], params.num_heads);
                  Problem problem = make_problem(call, params, device);
                  problem.S = slots_of_row(arrays);
                  problem.sequences = sequences;
                  PagedKeys pages(arrays[3], arrays[1], problem.sequences);
                  Forward(call, problem, &pages, o, results[1]).run();
                });
}

}  // namespace tiny_llm_ext
