// CPU evaluation of the dense product.
#include <algorithm>
#include <optional>

#include "core/divide_up.h"
#include "core/dtype.h"
#include "cpu/gemm/tasks.h"
#include "cpu/interface/kernels.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr cpu::ParallelThreshold kDenseThreshold = {200e3, 200e3};

void run(const cpu::Arrays& inputs, mx::array& y, const LinearParams& params) {
  const int64_t M = cpu::rows_of(y), N = y.shape(-1), K = inputs[0].shape(-1);
  const cpu::LinearKernel& kernel = params.kernels->linear[static_cast<int>(element_of(y.dtype()))](M);
  if (y.size() == 0) return;
  const double work = static_cast<double>(M) * N * K;
  const int threads = work < kDenseThreshold.now() ? 1 : params.threads.of(kernel.streamed);
  const cpu::RowMatrix x(inputs[0], threads), w(inputs[1], threads);
  std::optional<cpu::RowMatrix> bias;
  if (inputs.size() > 2) bias.emplace(inputs[2], threads);

  cpu::LinearTask all = {};
  all.x_row_stride = x.stride();
  all.w_row_stride = w.stride();
  all.y_row_stride = N;
  all.K = K;
  const auto task_of = [&](int64_t row, int64_t rows) {
    cpu::LinearTask task = all;
    task.x = x.at(row);
    task.rows = rows;
    return task;
  };

  all.rows = kernel.streamed ? M : kernel.pack_rows;
  const cpu::PackedX packed_x(M, all.rows, kernel.packed_bytes(all),
                              kernel.streamed ? 1 : kernel.task_rows / kernel.pack_rows);
  const int64_t outputs = cpu::outputs_of_task(N, packed_x.row_blocks(), threads, kernel.task_outputs);
  const int64_t output_tasks = divide_up(N, outputs);

  // Woken before packing, and ready for the product: a streamed x is packed by one thread.
  const auto sharing = static_cast<int>(std::min<int64_t>(threads, packed_x.row_blocks() * output_tasks));
  const cpu::Operation operation("product");
  const cpu::Team team(sharing);
  packed_x.pack(1, threads,
                [&](int64_t row, int64_t rows, void* to, int64_t) { kernel.pack(task_of(row, rows), to); });
  packed_x.run(output_tasks, kernel.streamed, threads,
               [&](int64_t row, int64_t rows, const void* packed, int64_t output_task) {
                 const int64_t n = output_task * outputs;
                 cpu::LinearTask task = task_of(row, rows);
                 task.w = w.at(n);
                 task.bias = bias ? bias->at(0, n) : nullptr;
                 task.y = y.data<std::byte>() + (row * N + n) * y.itemsize();
                 task.outputs = std::min(outputs, N - n);
                 kernel.run(task, packed, cpu::thread_scratch(kernel.scratch_bytes(task)));
               });
}

}  // namespace

void Linear::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_](const cpu::Arrays& arrays, cpu::Arrays& results) {
                  run(arrays, results[0], params);
                });
}

}  // namespace tiny_llm_ext
