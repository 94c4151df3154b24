// CPU evaluation of quantized linear layers.
#include <algorithm>

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
  QuantizedLayer(const cpu::QuantizedProductCall& call, std::vector<mx::array>& y)
      : call_(call),
        weights_(call.weights),
        rows_(call.kernels.rows[static_cast<int>(element_of(call.x.dtype()))]),
        kernels_(call.kernels.quantized[static_cast<int>(element_of(call.x.dtype()))]),
        M_(cpu::rows_of(call.x)),
        itemsize_(y[0].itemsize()),
        all_(call.weights.task()) {
    for (size_t i = 0; i < y.size(); i++)
      results_.push_back({y[i].data<std::byte>(), weights_.matrices()[i].outputs, 0, 0});
    const double work = static_cast<double>(M_) * static_cast<double>(weights_.elements());
    all_.streamed = M_ <= kernels_.max_streamed_rows;
    threads_ = work < kParallelThreshold.now() ? 1 : call.threads.of(all_.streamed);
  }

  void run() {
    const cpu::RowMatrix x = read_x();
    if (call_.residual) residual_.emplace(*call_.residual, threads_);
    all_.x_row_stride = x.stride();
    all_.rows = all_.streamed ? M_ : kernels_.pack_rows;
    const auto task_of = [&](int64_t row, int64_t rows) {
      cpu::QuantizedTask task = all_;
      task.x = x.at(row);
      task.rows = rows;
      return task;
    };
    const cpu::PackedX packed_x(M_, all_.rows, kernels_.packed_bytes(all_),
                                all_.streamed ? 1 : kernels_.task_rows / kernels_.pack_rows);
    packed_x.pack(threads_,
                  [&](int64_t row, int64_t rows, void* to) { kernels_.pack(task_of(row, rows), to); });

    const int64_t max_outputs = all_.streamed
                                    ? streamed_outputs()
                                    : cpu::outputs_of_task(weights_.outputs(), packed_x.row_blocks(),
                                                           threads_, kernels_.task_outputs);
    const int64_t unit = all_.streamed ? kStreamUnit : max_outputs;
    int64_t tasks = 0;
    for (Result& result : results_) {
      result.first_task = tasks;
      result.tasks = divide_up(result.outputs, max_outputs);
      tasks += result.tasks;
    }
    // Tasks of one matrix differ by at most one unit of outputs, so equal ranges of tasks are equal work.
    const auto first_output = [unit](const Result& result, int64_t task) {
      return std::min(divide_up(result.outputs, unit) * task / result.tasks * unit, result.outputs);
    };
    packed_x.run(tasks, all_.streamed, threads_,
                 [&](int64_t row, int64_t rows, const void* packed, int64_t output_task) {
                   size_t matrix = results_.size() - 1;
                   while (output_task < results_[matrix].first_task) matrix--;
                   const Result& result = results_[matrix];
                   const int64_t task_in_matrix = output_task - result.first_task;
                   const int64_t n = first_output(result, task_in_matrix);
                   cpu::QuantizedTask task = task_of(row, rows);
                   task.outputs = first_output(result, task_in_matrix + 1) - n;
                   run(task, packed, matrix, row, n);
                 });
  }

 private:
  // Outputs of a GEMV or skinny task. Gated results go through a buffer, which small tasks keep small.
  int64_t streamed_outputs() const {
    if (threads_ == 1 && !call_.gated) return weights_.outputs();
    return round_up(divide_up(weights_.outputs(), kTasksPerThread * threads_), kStreamUnit);
  }

  cpu::RowMatrix read_x() const {
    if (!call_.norm) return cpu::RowMatrix(call_.x, threads_);
    const int64_t width = call_.x.shape(-1);
    cpu::RowMatrix normalised(M_, width, itemsize_);
    const auto eps = static_cast<float>(call_.norm->eps);
    cpu::NormRows(call_.x, call_.norm->weight, eps, normalised.memory()).run(rows_, threads_);
    return normalised;
  }

  // A task of a matrix, from row m and column n of y on: product, bias, gate, residual.
  void run(cpu::QuantizedTask task, const void* packed, size_t matrix, int64_t m, int64_t n) const {
    const int64_t N = results_[matrix].outputs;
    const Block y = {results_[matrix].y + (m * N + n) * itemsize_, N * itemsize_};
    const int64_t scratch_bytes = round_up(kernels_.scratch_bytes(task), kCacheLine);
    const int64_t up_row_bytes = task.outputs * itemsize_;
    auto* const scratch = static_cast<std::byte*>(
        cpu::thread_scratch(scratch_bytes + (call_.gated ? task.rows * up_row_bytes : 0)));
    multiply(task, packed, scratch, matrix, n, y);
    if (call_.gated) {
      const Block up = {scratch + scratch_bytes, up_row_bytes};
      multiply(task, packed, scratch, matrix + 1, n, up);
      for (int64_t i = 0; i < task.rows; i++)
        rows_.silu_multiply(y.row(i), up.row(i), y.row(i), task.outputs);
    }
    for (int64_t i = 0; residual_ && i < task.rows; i++)
      rows_.add(residual_->at(m + i, n), y.row(i), y.row(i), task.outputs);
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
  std::optional<cpu::RowMatrix> residual_;
  cpu::QuantizedTask all_;
};

}  // namespace

void cpu::multiply_quantized(const QuantizedProductCall& call, Arrays& y) {
  const bool nothing =
      std::all_of(y.begin(), y.end(), [](const mx::array& some) { return some.size() == 0; });
  if (nothing) return;
  const Operation operation("quantized product");
  QuantizedLayer(call, y).run();
}

void QuantizedMatmul::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(
      stream(), inputs, outputs, [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
        const QuantizedMatrix matrix = {arrays[1], arrays[2], arrays[3], {}};
        const cpu::LayerWeights weights({matrix}, params.group_size, params.bits, params.threads.prompts);
        cpu::multiply_quantized(
            {arrays[0], weights, nullptr, nullptr, false, *params.kernels, params.threads}, results);
      });
}

void QuantizedLinear::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(
      stream(), inputs, outputs, [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
        const QuantizedCall call = quantized_call(arrays, params);
        const cpu::LayerWeights weights(call.matrices, params.group_size, params.bits,
                                        params.threads.prompts);
        cpu::multiply_quantized(
            {call.x, weights, call.norm ? &*call.norm : nullptr, call.residual ? &*call.residual : nullptr,
             call.gated, *params.kernels, params.threads},
            results);
      });
}

}  // namespace tiny_llm_ext
