// CPU evaluation of the quantized product: blocks of rows and outputs, each a task for the kernel.
#include <algorithm>

#include "attention/inputs.h"
#include "attention/tiles.h"
#include "cpu/allocate.h"
#include "cpu/dense_rows.h"
#include "cpu/dispatch.h"
#include "cpu/pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

// Multiply-adds below which waking a second thread costs more than it brings.
constexpr double kSingleThreadWork = 200e3;

void run(const cpu::Arrays& inputs, mx::array& y, const QuantizedParams& params) {
  const cpu::QuantizedKernels& kernels = params.kernels->quantized[static_cast<int>(element_of(y.dtype()))];
  const int64_t M = y.shape(0), N = y.shape(1), K = inputs[0].shape(1);
  if (y.size() == 0) return;
  const int threads = static_cast<double>(M) * N * K < kSingleThreadWork ? 1 : params.threads;
  const cpu::DenseRows a(inputs[0], threads), b(inputs[1], threads), scales(inputs[2], threads),
      biases(inputs[3], threads);

  cpu::QuantizedTask all = {};
  all.x_row_stride = a.stride(2);
  all.w_row_stride = b.stride(2);
  all.scales_row_stride = scales.stride(2);
  all.biases_row_stride = biases.stride(2);
  all.y_row_stride = N;
  all.groups = K / params.group_size;
  all.group = params.group_size;
  all.bits = params.bits;
  all.streamed = M <= kernels.streamed_rows;

  const int64_t pack_rows = all.streamed ? M : kernels.tile_rows;
  all.rows = pack_rows;
  const int64_t tile_bytes = kernels.packed_bytes(all);
  mx::allocator::Data packed = cpu::allocate(tile_bytes * divide_up(M, pack_rows));
  auto* const packed_x = static_cast<std::byte*>(packed.buffer().raw_ptr());
  cpu::parallel_for(divide_up(M, pack_rows), threads, [&](int64_t tile) {
    cpu::QuantizedTask task = all;
    task.x = a.at(tile * pack_rows * a.stride(2));
    task.rows = std::min(pack_rows, M - tile * pack_rows);
    kernels.pack(task, packed_x + tile * tile_bytes);
  });

  const int64_t task_rows = all.streamed ? M : kernels.task_tiles * kernels.tile_rows;
  const int64_t output_blocks = divide_up(N, kernels.task_outputs);
  cpu::parallel_for(divide_up(M, task_rows) * output_blocks, threads, [&](int64_t item) {
    // The rows of a block stay in the caches while the weights stream by.
    const int64_t m = item / output_blocks * task_rows;
    const int64_t n = item % output_blocks * kernels.task_outputs;
    cpu::QuantizedTask task = all;
    task.w = reinterpret_cast<const uint32_t*>(b.at(n * b.stride(2)));
    task.scales = scales.at(n * scales.stride(2));
    task.biases = biases.at(n * biases.stride(2));
    task.y = y.data<std::byte>() + (m * N + n) * y.itemsize();
    task.rows = std::min(task_rows, M - m);
    task.outputs = std::min<int64_t>(kernels.task_outputs, N - n);
    kernels.run(task, packed_x + m / pack_rows * tile_bytes,
                cpu::thread_scratch(kernels.scratch_bytes(task)));
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
