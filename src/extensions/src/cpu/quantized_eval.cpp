// CPU evaluation of the quantized product: blocks of rows and outputs, each a task for the kernel.
#include <algorithm>

#include "attention/inputs.h"
#include "attention/tiles.h"
#include "cpu/dense_rows.h"
#include "cpu/dispatch.h"
#include "cpu/pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

// Multiply-adds below which waking a second thread costs more than it brings.
constexpr double kSingleThreadWork = 200e3;

void run(const cpu::Arrays& inputs, mx::array& y, const QuantizedParams& params) {
  const cpu::Kernels& kernels = *params.kernels;
  const int element = static_cast<int>(element_of(y.dtype()));
  const int64_t M = y.shape(0), N = y.shape(1), K = inputs[0].shape(1);
  const int threads = static_cast<double>(M) * N * K < kSingleThreadWork ? 1 : params.threads;
  const cpu::DenseRows a(inputs[0], threads), b(inputs[1], threads), scales(inputs[2], threads),
      biases(inputs[3], threads);
  const int64_t row_blocks = divide_up(M, kernels.quantized_rows);
  const int64_t output_blocks = divide_up(N, kernels.quantized_outputs);
  cpu::parallel_for(row_blocks * output_blocks, threads, [&](int64_t item) {
    // The rows of a block stay in the caches while the weights stream by.
    const int64_t m = item / output_blocks * kernels.quantized_rows;
    const int64_t n = item % output_blocks * kernels.quantized_outputs;
    cpu::QuantizedTask task = {};
    task.x = a.at(m * a.stride(2));
    task.x_row_stride = a.stride(2);
    task.w = reinterpret_cast<const uint32_t*>(b.at(n * b.stride(2)));
    task.w_row_stride = b.stride(2);
    task.scales = scales.at(n * scales.stride(2));
    task.scales_row_stride = scales.stride(2);
    task.biases = biases.at(n * biases.stride(2));
    task.biases_row_stride = biases.stride(2);
    task.y = y.data<std::byte>() + (m * N + n) * y.itemsize();
    task.y_row_stride = N;
    task.rows = std::min<int64_t>(kernels.quantized_rows, M - m);
    task.outputs = std::min<int64_t>(kernels.quantized_outputs, N - n);
    task.groups = K / params.group_size;
    task.group = params.group_size;
    task.bits = params.bits;
    kernels.quantized_matmul[element](task, cpu::thread_scratch(kernels.quantized_scratch_bytes(task)));
  });
}

}  // namespace

void QuantizedMatmul::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
                  run(arrays, results[0], params);
                });
}

}  // namespace tiny_llm_ext
