// CPU evaluation of quantized linear layers.
#include <algorithm>

#include "core/divide_up.h"
#include "core/dtype.h"
#include "cpu/gemm/tasks.h"
#include "cpu/interface/kernels.h"
#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
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

struct Weights {
  Weights(const QuantizedMatrix& matrix, int threads)
      : words(matrix.weight, threads),
        scales(matrix.scales, threads),
        biases(matrix.biases, threads),
        outputs(matrix.weight.shape(0)) {
    if (matrix.bias) bias.emplace(*matrix.bias, 1);
  }

  // Points a task at the weights of the outputs from n on.
  void set(cpu::QuantizedTask& task, int64_t n) const {
    task.w = reinterpret_cast<const uint32_t*>(words.at(n));
    task.w_row_stride = words.stride();
    task.scales = scales.at(n);
    task.scales_row_stride = scales.stride();
    task.biases = biases.at(n);
    task.biases_row_stride = biases.stride();
  }

  cpu::RowMatrix words, scales, biases;
  std::optional<cpu::RowMatrix> bias;
  int64_t outputs;
};

// Some rows of an array (M, N) from column n on.
struct Block {
  std::byte* data;
  int64_t row_bytes;

  std::byte* row(int64_t m) const { return data + m * row_bytes; }
};

class QuantizedLayer {
 public:
  QuantizedLayer(const QuantizedCall& call, std::vector<mx::array>& y)
      : call_(call),
        y_(y),
        rows_(call.params.kernels->rows[static_cast<int>(element_of(call.x.dtype()))]),
        kernels_(call.params.kernels->quantized[static_cast<int>(element_of(call.x.dtype()))]),
        M_(cpu::rows_of(call.x)),
        itemsize_(y[0].itemsize()) {
    double work = 0;
    for (const QuantizedMatrix& matrix : call.matrices) {
      outputs_ += matrix.weight.shape(0);
      work += static_cast<double>(M_) * matrix.weight.shape(0) * call.x.shape(-1);
    }
    all_.streamed = M_ <= kernels_.max_streamed_rows;
    threads_ = work < kParallelThreshold.now() ? 1 : call.params.threads.of(all_.streamed);
    for (const QuantizedMatrix& matrix : call.matrices) weights_.emplace_back(matrix, threads_);
    all_.num_groups = call.matrices[0].scales.shape(1);
    all_.group_size = call.params.group_size;
    all_.bits = call.params.bits;
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

    const int64_t max_outputs = all_.streamed ? streamed_outputs()
                                              : cpu::outputs_of_task(outputs_, packed_x.row_blocks(),
                                                                     threads_, kernels_.task_outputs);
    const int64_t unit = all_.streamed ? kStreamUnit : max_outputs;
    std::vector<int64_t> first_task = {0};  // of each matrix
    for (size_t i = 0; i < y_.size(); i++)
      first_task.push_back(first_task.back() + divide_up(weights_[i].outputs, max_outputs));
    // Tasks of one matrix differ by at most one unit of outputs, so equal ranges of tasks are equal work.
    const auto first_output = [&](size_t matrix, int64_t task_in_matrix) {
      const int64_t outputs = weights_[matrix].outputs, units = divide_up(outputs, unit);
      const int64_t tasks = first_task[matrix + 1] - first_task[matrix];
      return std::min(units * task_in_matrix / tasks * unit, outputs);
    };
    packed_x.run(first_task.back(), all_.streamed, threads_,
                 [&](int64_t row, int64_t rows, const void* packed, int64_t output_task) {
                   const auto next = std::upper_bound(first_task.begin(), first_task.end(), output_task);
                   const size_t matrix = next - first_task.begin() - 1;
                   const int64_t task_in_matrix = output_task - first_task[matrix];
                   const int64_t n = first_output(matrix, task_in_matrix);
                   cpu::QuantizedTask task = task_of(row, rows);
                   task.outputs = first_output(matrix, task_in_matrix + 1) - n;
                   run(task, packed, matrix, row, n);
                 });
  }

 private:
  // Outputs of a GEMV or skinny task. Gated results go through a buffer, which small tasks keep small.
  int64_t streamed_outputs() const {
    if (threads_ == 1 && !call_.gated) return outputs_;
    return round_up(divide_up(outputs_, kTasksPerThread * threads_), kStreamUnit);
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
    const int64_t N = weights_[matrix].outputs;
    const Block y = {y_[matrix].data<std::byte>() + (m * N + n) * itemsize_, N * itemsize_};
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
    weights_[matrix].set(task, n);
    task.y = y.data;
    task.y_row_stride = y.row_bytes / itemsize_;
    kernels_.run(task, packed, scratch);
    for (int64_t i = 0; weights_[matrix].bias && i < task.rows; i++)
      rows_.add(y.row(i), weights_[matrix].bias->at(0, n), y.row(i), task.outputs);
  }

  const QuantizedCall& call_;
  std::vector<mx::array>& y_;
  const cpu::RowKernels& rows_;
  const cpu::QuantizedKernels& kernels_;
  const int64_t M_, itemsize_;
  int64_t outputs_ = 0;
  int threads_;
  std::vector<Weights> weights_;
  std::optional<cpu::RowMatrix> residual_;
  cpu::QuantizedTask all_ = {};
};

}  // namespace

void cpu::multiply_quantized(const QuantizedCall& call, Arrays& y) {
  const bool nothing =
      std::all_of(y.begin(), y.end(), [](const mx::array& some) { return some.size() == 0; });
  if (!nothing) QuantizedLayer(call, y).run();
}

void QuantizedMatmul::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const QuantizedMatrix matrix = {arrays[1], arrays[2], arrays[3], {}};
                  cpu::multiply_quantized({arrays[0], {matrix}, {}, {}, false, params}, results);
                });
}

void QuantizedLinear::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
                  cpu::multiply_quantized(quantized_call(arrays, params), results);
                });
}

}  // namespace tiny_llm_ext
