// CPU evaluation of the dense product: blocks of rows and outputs, each a task for the kernel.
#include <algorithm>
#include <optional>

#include "core/divide_up.h"
#include "core/dtype.h"
#include "cpu/gemm/tasks.h"
#include "cpu/kernels/kernels.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

// Multiply-adds below which waking a second thread costs more than it brings.
constexpr double kSingleThreadWork = 200e3;

void run(const cpu::Arrays& inputs, mx::array& y, const LinearParams& params) {
  const int64_t M = cpu::rows_of(y), N = y.shape(-1), K = inputs[0].shape(-1);
  const cpu::LinearForm& form = params.kernels->linear[static_cast<int>(element_of(y.dtype()))](M);
  if (y.size() == 0) return;
  const int threads = static_cast<double>(M) * N * K < kSingleThreadWork ? 1 : params.threads;
  const cpu::RowMatrix x(inputs[0], threads), w(inputs[1], threads);
  std::optional<cpu::RowMatrix> bias;
  if (inputs.size() > 2) bias.emplace(inputs[2], threads);

  cpu::LinearTask all = {};
  all.x_row_stride = x.stride();
  all.w_row_stride = w.stride();
  all.y_row_stride = N;
  all.K = K;

  const int64_t pack_rows = form.streamed ? M : form.tile_rows, tiles = divide_up(M, pack_rows);
  all.rows = pack_rows;
  const int64_t tile_bytes = form.packed_bytes(all);
  // Vectors that straddle two cache lines cost two reads.
  constexpr uintptr_t kAlignment = 64;
  const mx::allocator::Data packed = cpu::allocate(cpu::bytes_of({tile_bytes, tiles}) + kAlignment);
  auto* const packed_x = reinterpret_cast<std::byte*>(
      divide_up(reinterpret_cast<uintptr_t>(packed.buffer().raw_ptr()), kAlignment) * kAlignment);
  const int64_t task_tiles = form.streamed ? 1 : divide_up(tiles, divide_up(tiles, form.task_tiles));
  const int64_t row_blocks = divide_up(tiles, task_tiles);
  const int64_t outputs = cpu::outputs_of_task(N, row_blocks, threads, form.task_outputs);
  const int64_t output_blocks = divide_up(N, outputs);

  // If all sleep, those that will share the product wake up while x is packed, which few rows are by one.
  const auto sharing = static_cast<int>(std::min<int64_t>(threads, row_blocks * output_blocks));
  std::optional<cpu::KeepSpinning> spinning;
  if (sharing > 1) spinning.emplace(sharing);
  cpu::parallel_for(tiles, threads, [&](int64_t tile) {
    cpu::LinearTask task = all;
    task.x = x.at(tile * pack_rows);
    task.rows = std::min(pack_rows, M - tile * pack_rows);
    form.pack(task, packed_x + tile * tile_bytes);
  });

  spinning.reset();  // the threads spin a while longer
  const auto share_out = form.streamed ? cpu::parallel_ranges : cpu::parallel_for;
  share_out(row_blocks * output_blocks, threads, [&](int64_t item) {
    // The rows of a block stay in the caches while the weights stream by.
    const int64_t tile = item / output_blocks * task_tiles, m = tile * pack_rows;
    const int64_t n = item % output_blocks * outputs;
    cpu::LinearTask task = all;
    task.x = x.at(m);
    task.w = w.at(n);
    task.bias = bias ? bias->at(0, n) : nullptr;
    task.y = y.data<std::byte>() + (m * N + n) * y.itemsize();
    task.rows = std::min(task_tiles * pack_rows, M - m);
    task.outputs = std::min(outputs, N - n);
    form.run(task, packed_x + tile * tile_bytes, cpu::thread_scratch(form.scratch_bytes(task)));
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
