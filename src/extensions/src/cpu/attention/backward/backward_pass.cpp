// Cuts a backward pass into tasks and runs them: D of each row, then dQ by rows, and dK and dV by keys, or
// all by KV heads. No two tasks write the same memory, and each sums in a fixed order: the bits depend
// neither on the number of threads nor on other sequences.
#include "cpu/attention/backward/backward_pass.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/last_run.h"
#include "attention/lengths.h"
#include "attention/tiles.h"
#include "core/divide_up.h"
#include "core/strides.h"
#include "cpu/attention/backward/backward_plan.h"
#include "cpu/attention/backward/page_gradients.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "cpu/attention/plan.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

// Multiply-adds per visible pair of row and key, of which the forward pass has two: three products for dQ,
// four for dK and dV.
constexpr double kProducts = 7.0 / 2;

// Rows of a task that computes D.
constexpr int64_t kDeltaRows = 1024;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Axis { rows, keys };

class BackwardPass {
 public:
  BackwardPass(const AttentionInputs& inputs, const Cotangents& cotangents, const Problem& problem,
               Gradients& gradients, const PageTables* pages)
      : problem_(problem),
        pages_(pages),
        kernels_(problem.kernels->attention[static_cast<int>(problem.dtype)]),
        batch_(batch_shape(inputs)),
        mask_(inputs.mask, problem.mask),
        sinks_(inputs.sinks),
        gradients_(gradients),
        lse_array_(cotangents.lse),
        d_lse_array_(cotangents.d_lse),
        lse_(HeadRows::of_lse(lse_array_, batch_)),
        d_lse_(HeadRows::of_lse(d_lse_array_, batch_)) {
    double work = 0;
    const auto add = [&](const Sequence& sequence, double times) {
      work += times * kProducts * sequence.n_q * sequence.n_k * problem.Hq * problem.E;
      longest_rows_ = std::max(longest_rows_, sequence.q_rows * problem.gqa_heads());
      longest_keys_ = std::max(longest_keys_, sequence.n_k);
    };
    if (!lists_sequences()) add(problem.whole_entry(0), static_cast<double>(problem.B));
    for (const Sequence& sequence : problem.sequences) add(sequence, 1);
    threads_ = work < kAttentionThreshold.now() ? 1 : problem.threads.prompts;
    const auto dense = [&](const mx::array& x, const mx::Shape& batch) {
      inputs_.push_back(HeadRows::of(dense_.emplace_back(x, threads_), problem.element_bytes(), batch));
    };
    dense_.reserve(5);
    const mx::Shape keys_batch = pages ? mx::Shape{1} : batch_;  // of pages, only the first is addressed here
    dense(inputs.query, batch_);
    for (const mx::array& x : {inputs.key, inputs.value}) dense(x, keys_batch);
    for (const mx::array& x : {cotangents.o, cotangents.d_o}) dense(x, batch_);
    if (pages && gradients.dk) page_gradients_.emplace(problem, *pages, inputs_[kKey], inputs_[kValue]);
  }

  void run() {
    const auto memory = allocate(bytes_of({problem_.B * problem_.Hq * problem_.L, sizeof(float)}));
    delta_ = static_cast<float*>(memory.buffer().raw_ptr());
    LastRun run = {kBackwardPath, 0, 0, 1, problem_.kernels->name, threads_};
    run_tasks(Axis::rows, kDeltaRows, [&](const BackwardTask& task) {
      kernels_.backward_delta(task);
      return 0;
    });
    BackwardPlan plan = make_backward_plan(problem_);
    if (!gradients_.dq || !gradients_.dk) plan.schedule = BackwardSchedule::two_passes;
    run.backward_schedule = name_of(plan.schedule);
    if (gradients_.dk && !pages_) clear_unused_keys();
    if (plan.schedule == BackwardSchedule::one_pass) {
      run.tiles_visited = run.key_tiles_visited = run_one_pass(plan.order);
      run.tiles_total = run.key_tiles_total = count_all(kernels_.backward_dqkv);
    } else {
      run_two_passes(run);
    }
    if (gradients_.dsinks) parallel_for(problem_.Hq, threads_, [&](int64_t head) { sum_sinks(head); });
    record_run(run);
  }

 private:
  enum Input { kQuery, kKey, kValue, kOutput, kOutputCotangent };

  // Without a list, each batch entry is a sequence. Pages always have one, which may be empty.
  bool lists_sequences() const { return pages_ || !problem_.sequences.empty(); }

  void run_two_passes(LastRun& run) {
    if (gradients_.dq) {
      run.tiles_visited = run_pass(Axis::rows, kernels_.backward_dq);
      run.tiles_total = count_all(kernels_.backward_dq);
    }
    if (gradients_.dk) {
      run.key_tiles_visited = run_pass(Axis::keys, kernels_.backward_dkv);
      run.key_tiles_total = count_all(kernels_.backward_dkv);
      if (page_gradients_) {
        page_gradients_->sum_into(0, *gradients_.dk, threads_);
        page_gradients_->sum_into(1, *gradients_.dv, threads_);
      }
    }
  }

  int64_t sequence_count() const {
    return lists_sequences() ? static_cast<int64_t>(problem_.sequences.size()) : problem_.B;
  }
  Sequence sequence(int64_t n) const {
    return lists_sequences() ? problem_.sequences[n] : problem_.whole_entry(n);
  }

  int64_t count_all(const PassKernel<BackwardTask>& kernel) const {
    return total_tiles(problem_, problem_.Hkv, kernel.row_tile, kernel.key_tile);
  }

  // Sequence by sequence and head by head, so that keys stay in the processor's caches. In causal attention
  // the last rows see the most keys and the first keys are seen by the most rows; these go first, since short
  // tasks at the end balance the threads.
  template <class Run>
  int64_t run_tasks(Axis axis, int64_t extent, Run run) {
    const int64_t blocks = divide_up(axis == Axis::rows ? longest_rows_ : longest_keys_, extent);
    std::atomic<int64_t> tiles = 0;
    parallel_for(sequence_count() * problem_.Hkv * blocks, threads_, [&](int64_t n) {
      const Sequence sequence = this->sequence(n / blocks / problem_.Hkv);
      const int64_t block = axis == Axis::rows ? blocks - 1 - n % blocks : n % blocks;
      BackwardTask task = make_task(sequence, n / blocks % problem_.Hkv);
      const int64_t end = axis == Axis::rows ? sequence.q_rows * problem_.gqa_heads() : sequence.n_k;
      task.begin = block * extent;
      task.end = std::min(task.begin + extent, end);
      if (task.begin < task.end) tiles += run(task);
    });
    return tiles;
  }

  int64_t run_pass(Axis axis, const PassKernel<BackwardTask>& kernel) {
    const int64_t tile = axis == Axis::rows ? kernel.row_tile : kernel.key_tile;
    const int64_t longest = axis == Axis::rows ? longest_rows_ : longest_keys_;
    int64_t tiles = kernel.tiles_per_task;
    while (tiles > 1 && threads_ > 1 &&
           sequence_count() * problem_.Hkv * divide_up(longest, tiles * tile) < threads_ * kTasksPerThread)
      tiles = (tiles + 1) / 2;
    return run_tasks(axis, tiles * tile, [&](const BackwardTask& task) {
      const auto extent = task.end - task.begin;
      return kernel.run(task, thread_scratch(kernel.scratch_bytes(task.E, extent)));
    });
  }

  // A task for each KV head of each sequence.
  int64_t run_one_pass(const std::vector<int64_t>& order) {
    const PassKernel<BackwardTask>& kernel = kernels_.backward_dqkv;
    std::atomic<int64_t> tiles = 0;
    parallel_for(sequence_count() * problem_.Hkv, threads_, [&](int64_t n) {
      const int64_t place = n / problem_.Hkv;
      const Sequence sequence = this->sequence(order.empty() ? place : order[place]);
      BackwardTask task = make_task(sequence, n % problem_.Hkv);
      task.end = sequence.q_rows * problem_.gqa_heads();
      tiles += kernel.run(task, thread_scratch(kernel.scratch_bytes(task.E, task.end)));
    });
    return tiles;
  }

  HeadMatrix matrix(Input input, int64_t entry, int64_t head, int64_t row) const {
    const HeadRows& rows = inputs_[input];
    return {rows.at(entry, head, row), rows.head_stride(), rows.row_stride()};
  }

  HeadMatrix key_matrix(Input input, const Sequence& sequence, int64_t kv_head) const {
    if (pages_) return matrix(input, 0, kv_head, 0);
    return matrix(input, sequence.entry, kv_head, sequence.k_begin);
  }

  HeadMatrixOut key_matrix(std::optional<mx::array>& gradient, int number, const Sequence& sequence,
                           int64_t kv_head) const {
    if (page_gradients_) return page_gradients_->rows(number, sequence, kv_head);
    return matrix(gradient, sequence.entry, kv_head, sequence.k_begin);
  }

  HeadMatrixOut matrix(std::optional<mx::array>& gradient, int64_t entry, int64_t head, int64_t row) const {
    if (!gradient) return {};
    const HeadRows rows = HeadRows::of(*gradient, batch_);
    return {rows.at(entry, head, row), rows.head_stride(), rows.row_stride()};
  }

  float* delta(const Sequence& sequence, int64_t head) const {
    return delta_ + (sequence.entry * problem_.Hq + head) * problem_.L + sequence.q_begin;
  }

  static const float* element(const HeadRows& rows, const Sequence& sequence, int64_t head) {
    return reinterpret_cast<const float*>(rows.at(sequence.entry, head, sequence.q_begin));
  }

  BackwardTask make_task(const Sequence& sequence, int64_t kv_head) const {
    const int64_t entry = sequence.entry, head = kv_head * problem_.gqa_heads();
    BackwardTask task = {};
    task.q = matrix(kQuery, entry, head, sequence.q_begin);
    task.o = matrix(kOutput, entry, head, sequence.q_begin);
    task.d_o = matrix(kOutputCotangent, entry, head, sequence.q_begin);
    task.k = key_matrix(kKey, sequence, kv_head);
    task.v = key_matrix(kValue, sequence, kv_head);
    if (pages_) task.pages = pages_->table(sequence, problem_.left, inputs_[kKey], inputs_[kValue]);
    task.lse = element(lse_, sequence, head);
    task.lse_head_stride = lse_.head_stride();
    task.lse_row_stride = lse_.row_stride();
    task.d_lse = element(d_lse_, sequence, head);
    task.d_lse_head_stride = d_lse_.head_stride();
    task.d_lse_row_stride = d_lse_.row_stride();
    task.delta = delta(sequence, head);
    task.delta_head_stride = problem_.L;
    task.mask = mask_.view(entry, batch_, head, sequence.k_begin);
    task.dq = matrix(gradients_.dq, entry, head, sequence.q_begin);
    task.dk = key_matrix(gradients_.dk, 0, sequence, kv_head);
    task.dv = key_matrix(gradients_.dv, 1, sequence, kv_head);
    task.float_dkv = page_gradients_.has_value();
    task.E = static_cast<int32_t>(problem_.E);
    task.gqa_heads = static_cast<int32_t>(problem_.gqa_heads());
    task.n_q = sequence.n_q;
    task.n_k = sequence.n_k;
    task.left = problem_.left;
    task.right = problem_.right;
    task.scale = problem_.scale;
    task.softcap = problem_.softcap;
    return task;
  }

  // Slots without a key of a sequence have the gradient 0.
  void clear_unused_keys() {
    const auto uses_all = [](const Sequence& sequence) { return sequence.n_k == sequence.k_rows; };
    if (std::all_of(problem_.sequences.begin(), problem_.sequences.end(), uses_all)) return;
    for (auto* gradient : {&gradients_.dk, &gradients_.dv})
      std::memset((*gradient)->data<std::byte>(), 0, (*gradient)->nbytes());
  }

  // -sum over the rows of exp(sink - LSE) * D. A row with an LSE of -inf adds nothing.
  void sum_sinks(int64_t head) {
    mx::Strides strides = broadcast_strides(*sinks_);
    const int64_t head_stride = strides.back();
    strides.pop_back();
    float* sums = gradients_.dsinks->data<float>() + head;
    for (int64_t entry = 0; entry < problem_.B; entry++) sums[entry * problem_.Hq] = 0;
    for (int64_t n = 0; n < sequence_count(); n++) {
      const Sequence sequence = this->sequence(n);
      const double sink =
          sinks_->data<float>()[batch_offset(sequence.entry, batch_, strides) + head * head_stride];
      const float *lse = element(lse_, sequence, head), *delta_row = delta(sequence, head);
      double sum = 0;
      for (int64_t i = 0; i < sequence.n_q && sink != -kInfinity; i++) {
        const double row_lse = lse[i * lse_.row_stride()];
        if (row_lse != -kInfinity) sum -= std::exp(sink - row_lse) * delta_row[i];
      }
      sums[sequence.entry * problem_.Hq] += static_cast<float>(sum);
    }
  }

  const Problem& problem_;
  const PageTables* pages_;  // null if keys and values are not in pages
  const AttentionKernels& kernels_;
  mx::Shape batch_;
  MaskViews mask_;
  std::optional<mx::array> sinks_;
  Gradients& gradients_;
  mx::array lse_array_, d_lse_array_;
  HeadRows lse_, d_lse_;
  std::vector<DenseRows> dense_;
  std::vector<HeadRows> inputs_;
  std::optional<PageGradients> page_gradients_;  // of pages, if dK and dV are wanted
  int64_t longest_rows_ = 0, longest_keys_ = 0;
  int threads_;
  float* delta_ = nullptr;
};

}  // namespace

void run_backward(const AttentionInputs& inputs, const Cotangents& cotangents, const Problem& problem,
                  Gradients& gradients, const PageTables* pages) {
  BackwardPass(inputs, cotangents, problem, gradients, pages).run();
}

}  // namespace tiny_llm_ext::cpu
