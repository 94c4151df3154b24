// CPU evaluation of quantized linear layers.
#include <algorithm>
#include <atomic>

#include "core/divide_up.h"
#include "core/dtype.h"
#include "cpu/gemm/tasks.h"
#include "cpu/interface/kernels.h"
#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr cpu::ParallelThreshold kParallelThreshold = {2e5, 4e6};
// GEMV and skinny products stream the weights, each thread a range of them; with small tasks threads end at
// the same time. Gate and up share tasks: each task computes both, so there are half as many.
constexpr int64_t kTasksPerThread = 16;  // at most
// The smallest task: a multiple of the outputs that any GEMV or skinny kernel takes at once.
constexpr int64_t kStreamUnit = 64;
// The packed rows of a GEMV or skinny product up to which each thread makes its own: the copies of all
// threads would push larger ones out of the caches that they share.
constexpr int64_t kOwnPackedBytes = 128 << 10;
// Elements of x that an item normalises or packs for all threads, at least: a microsecond or two.
constexpr int64_t kPackedElements = 4096;

// Some rows of an array (M, N) from column n on.
struct Block {
  std::byte* data;
  int64_t row_bytes;

  std::byte* row(int64_t m) const { return data + m * row_bytes; }
};

// The result of a matrix, which tasks cut along its outputs.
struct Result {
  std::byte* y;
  int64_t outputs, first_task, tasks;
};

class QuantizedLayer {
 public:
  QuantizedLayer(const cpu::QuantizedProductCall& call, const std::vector<std::byte*>& y)
      : call_(call),
        weights_(call.weights),
        rows_(call.kernels.rows[static_cast<int>(call.element)]),
        kernels_(call.kernels.quantized[static_cast<int>(call.element)]),
        M_(call.rows),
        itemsize_(size_of(call.element)),
        all_(call.weights.task()) {
    for (size_t i = 0; i < y.size(); i++) results_.push_back({y[i], weights_.matrices()[i].outputs, 0, 0});
    const double work = static_cast<double>(M_) * static_cast<double>(weights_.elements());
    all_.streamed = M_ <= kernels_.max_streamed_rows;
    threads_ = work < kParallelThreshold.now() ? 1 : call.threads.of(all_.streamed);
  }

  void run() {
    const cpu::RowMatrix& x = call_.x;
    all_.x_row_stride = x.stride();
    all_.rows = all_.streamed ? M_ : kernels_.pack_rows;
    if (all_.streamed && packed_bytes() <= kOwnPackedBytes) return run_with_own_x(x);
    if (!weights_.norm()) return run_with_shared_x(x, nullptr);
    cpu::RowMatrix normalised(M_, width(), itemsize_);
    all_.x_row_stride = normalised.stride();
    run_with_shared_x(x, &normalised);
  }

 private:
  // Each thread normalises and packs x for itself, before its first task: that takes no longer than if one
  // thread did so, for which the others would have to wait, to fetch the packed rows from its caches.
  void run_with_own_x(const cpu::RowMatrix& x) {
    all_.x = x.at(0);
    all_.outputs = streamed_outputs();
    const int64_t tasks = cut(all_.outputs, kStreamUnit);
    const int64_t normalised_bytes = weights_.norm() ? round_up(M_ * width() * itemsize_, kCacheLine) : 0;
    const int64_t bytes = normalised_bytes + packed_bytes() + scratch_bytes(all_);
    static std::atomic<int64_t> calls{0};
    const int64_t this_call = ++calls;
    cpu::parallel_ranges(tasks, threads_, [&](int64_t number) {
      auto* const normalised = static_cast<std::byte*>(cpu::thread_scratch(bytes));
      std::byte* const packed = normalised + normalised_bytes;
      cpu::QuantizedTask task = all_;
      if (weights_.norm()) {
        task.x = normalised;
        task.x_row_stride = width();
      }
      static thread_local int64_t packed_call = 0;  // whose x the scratch of this thread holds
      if (packed_call != this_call) {
        for (int64_t m = 0; m < M_; m++) {
          if (weights_.norm()) normalise(x, m, normalised);
          kernels_.prepare_row(task, packed, m);
        }
        kernels_.pack(task, packed, 0, kernels_.pack_parts(task));
        packed_call = this_call;
      }
      run(task, packed, packed + packed_bytes(), 0, number);
    });
  }

  // All threads share normalising and packing: first the rows, then parts of K of each panel.
  void run_with_shared_x(const cpu::RowMatrix& given, cpu::RowMatrix* normalised) {
    const cpu::RowMatrix& x = normalised ? *normalised : given;
    const auto task_of = [&](int64_t row, int64_t rows) {
      cpu::QuantizedTask task = all_;
      task.x = x.at(row);
      task.rows = rows;
      return task;
    };
    const cpu::PackedX packed_x(M_, all_.rows, kernels_.packed_bytes(all_),
                                all_.streamed ? 1 : kernels_.task_rows / kernels_.pack_rows);
    const bool prepares = kernels_.prepares_rows(all_);
    const int64_t rows_of_item = divide_up(kPackedElements, std::max<int64_t>(width(), 1));
    cpu::parallel_for(normalised || prepares ? divide_up(M_, rows_of_item) : 0, threads_, [&](int64_t item) {
      for (int64_t m = item * rows_of_item; m < std::min(M_, (item + 1) * rows_of_item); m++) {
        if (normalised) normalise(given, m, normalised->memory());
        const int64_t first = packed_x.first_row(m);
        if (prepares)
          kernels_.prepare_row(task_of(first, packed_x.rows_of_panel(first)), packed_x.panel_of(m),
                               m - first);
      }
    });
    const int64_t parts = kernels_.pack_parts(all_), pieces = pieces_of_panel(packed_x.panels(), parts);
    packed_x.pack(pieces, threads_, [&](int64_t row, int64_t rows, void* to, int64_t piece) {
      kernels_.pack(task_of(row, rows), to, parts * piece / pieces, parts * (piece + 1) / pieces);
    });
    all_.outputs = all_.streamed ? streamed_outputs()
                                 : cpu::outputs_of_task(weights_.outputs(), packed_x.row_blocks(), threads_,
                                                        kernels_.task_outputs);
    packed_x.run(cut(all_.outputs, all_.streamed ? kStreamUnit : all_.outputs), all_.streamed, threads_,
                 [&](int64_t row, int64_t rows, const void* packed, int64_t number) {
                   const cpu::QuantizedTask task = task_of(row, rows);
                   auto* const scratch = static_cast<std::byte*>(cpu::thread_scratch(scratch_bytes(task)));
                   run(task, packed, scratch, row, number);
                 });
  }

  // Into how many pieces a panel of so many parts is cut: all threads have work, of which no item is too
  // small.
  int64_t pieces_of_panel(int64_t panels, int64_t parts) const {
    const int64_t most = std::min(parts, all_.rows * width() / kPackedElements);
    return std::clamp<int64_t>(divide_up(int64_t{threads_}, panels), 1, std::max<int64_t>(most, 1));
  }

  // Cuts the results into tasks of at most so many outputs, and returns their number. Tasks of one matrix
  // differ by at most one unit of outputs, so equal ranges of tasks are equal work.
  int64_t cut(int64_t max_outputs, int64_t unit) {
    unit_ = unit;
    int64_t tasks = 0;
    for (Result& result : results_) {
      result.first_task = tasks;
      result.tasks = divide_up(result.outputs, max_outputs);
      tasks += result.tasks;
    }
    return tasks;
  }

  // The first output of a task of a result.
  int64_t first_output(const Result& result, int64_t task) const {
    return std::min(divide_up(result.outputs, unit_) * task / result.tasks * unit_, result.outputs);
  }

  // Outputs of a GEMV or skinny task. Gated results go through a buffer, which small tasks keep small.
  int64_t streamed_outputs() const {
    if (threads_ == 1 && !call_.gated) return weights_.outputs();
    return round_up(divide_up(weights_.outputs(), kTasksPerThread * threads_), kStreamUnit);
  }

  int64_t width() const { return int64_t{all_.num_groups} * all_.group_size; }
  int64_t packed_bytes() const {
    return round_up(static_cast<int64_t>(kernels_.packed_bytes(all_)), kCacheLine);
  }

  // Row m of x, to row m of `to`.
  void normalise(const cpu::RowMatrix& x, int64_t m, std::byte* to) const {
    cpu::NormTask task = *weights_.norm();
    task.x = x.at(m);
    task.y = to + m * width() * itemsize_;
    rows_.rms_norm(task);
  }

  // Of a task: the scratch of its kernel, then the second operand of the gate.
  int64_t scratch_bytes(const cpu::QuantizedTask& task) const {
    return kernel_scratch_bytes(task) + (call_.gated ? task.rows * task.outputs * itemsize_ : 0);
  }
  int64_t kernel_scratch_bytes(const cpu::QuantizedTask& task) const {
    return round_up(static_cast<int64_t>(kernels_.scratch_bytes(task)), kCacheLine);
  }

  // The task with a number among those of the results, on rows from m on: product, bias, gate, residual.
  void run(cpu::QuantizedTask task, const void* packed, std::byte* scratch, int64_t m, int64_t number) const {
    size_t matrix = results_.size() - 1;
    while (number < results_[matrix].first_task) matrix--;
    const Result& result = results_[matrix];
    const int64_t task_of_result = number - result.first_task, N = result.outputs;
    const int64_t n = first_output(result, task_of_result);
    std::byte* const after_kernel = scratch + kernel_scratch_bytes(task);
    task.outputs = first_output(result, task_of_result + 1) - n;
    const Block y = {result.y + (m * N + n) * itemsize_, N * itemsize_};
    multiply(task, packed, scratch, matrix, n, y);
    if (call_.gated) {
      const Block up = {after_kernel, task.outputs * itemsize_};
      multiply(task, packed, scratch, matrix + 1, n, up);
      for (int64_t i = 0; i < task.rows; i++)
        rows_.silu_multiply(y.row(i), up.row(i), y.row(i), task.outputs);
    }
    for (int64_t i = 0; call_.residual && i < task.rows; i++)
      rows_.add(call_.residual->at(m + i, n), y.row(i), y.row(i), task.outputs);
  }

  void multiply(cpu::QuantizedTask task, const void* packed, void* scratch, size_t matrix, int64_t n,
                Block y) const {
    weights_.set(task, matrix, n);
    task.y = y.data;
    task.y_row_stride = y.row_bytes / itemsize_;
    kernels_.run(task, packed, scratch);
    const std::byte* const bias = weights_.bias(matrix, n);
    for (int64_t i = 0; bias && i < task.rows; i++) rows_.add(y.row(i), bias, y.row(i), task.outputs);
  }

  const cpu::QuantizedProductCall& call_;
  const cpu::LayerWeights& weights_;
  std::vector<Result> results_;
  const cpu::RowKernels& rows_;
  const cpu::QuantizedKernels& kernels_;
  const int64_t M_, itemsize_;
  int threads_;
  int64_t unit_ = 0;  // of the outputs of tasks
  cpu::QuantizedTask all_;
};

// The weights times x, with a residual if there is one.
void multiply_arrays(const mx::array& x, const cpu::LayerWeights& weights,
                     const std::optional<mx::array>& residual, bool gated, const QuantizedParams& params,
                     cpu::Arrays& results) {
  const cpu::RowMatrix rows(x, params.threads.prompts);
  std::optional<cpu::RowMatrix> added;
  if (residual) added.emplace(*residual, params.threads.prompts);
  std::vector<std::byte*> y;
  for (mx::array& result : results) y.push_back(result.data<std::byte>());
  cpu::multiply_quantized({rows, cpu::rows_of(x), element_of(x.dtype()), weights, added ? &*added : nullptr,
                           gated, *params.kernels, params.threads},
                          y);
}

}  // namespace

void cpu::multiply_quantized(const QuantizedProductCall& call, const std::vector<std::byte*>& y) {
  if (call.rows == 0 || call.weights.outputs() == 0) return;
  const Operation operation("quantized product");
  QuantizedLayer(call, y).run();
}

void QuantizedMatmul::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(
      stream(), inputs, outputs, [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
        const QuantizedMatrix matrix = {arrays[1], arrays[2], arrays[3], {}};
        const cpu::LayerWeights weights({matrix}, {}, params.group_size, params.bits, params.threads.prompts);
        multiply_arrays(arrays[0], weights, {}, false, params, results);
      });
}

void QuantizedLinear::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const QuantizedCall call = quantized_call(arrays, params);
                  const cpu::LayerWeights weights(call.matrices, call.norm, params.group_size, params.bits,
                                                  params.threads.prompts);
                  multiply_arrays(call.x, weights, call.residual, call.gated, params, results);
                });
}

}  // namespace tiny_llm_ext
