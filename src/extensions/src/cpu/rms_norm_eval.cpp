// CPU evaluation of the root mean square norm: a kernel for each row, the sum first if there is a residual.
#include "attention/inputs.h"
#include "cpu/dispatch.h"
#include "cpu/pool.h"
#include "cpu/row_memory.h"
#include "row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerElement = 0.25;

}  // namespace

void RmsNorm::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &x = inputs[0], &weight = inputs[1];
  const mx::array& residual = inputs.size() == 3 ? inputs[2] : x;
  const bool added = inputs.size() == 3;
  // The rows of an output may lie where the rows of an input are read for the last time.
  if (added) cpu::place_output(outputs[0], {&residual, &x});
  cpu::place_output(outputs.back(), {&x, &residual});
  if (x.size() == 0) return;

  cpu::NormTask task = {};
  task.width = x.shape(-1);
  task.eps = eps_;
  task.weight_element = element_of(weight.dtype());
  std::byte* const sum = added ? outputs[0].data<std::byte>() : nullptr;
  std::byte* const y = outputs.back().data<std::byte>();
  auto run = [=, kernel = kernels_of(x).rms_norm, threads = threads_, rows = x.size() / x.shape(-1),
              from_x = cpu::RowReader(x), from_weight = cpu::RowReader(weight),
              from_residual = cpu::RowReader(residual)] {
    const size_t bytes = from_x.row_bytes(), aligned = (bytes + 63) / 64 * 64;
    cpu::for_rows(rows, kNanosecondsPerElement * task.width, threads, [&](int64_t begin, int64_t end) {
      auto* room = static_cast<std::byte*>(cpu::thread_scratch(2 * aligned + from_weight.row_bytes()));
      cpu::NormTask row = task;
      row.weight = from_weight.row(0, room + 2 * aligned);
      for (int64_t m = begin; m < end; m++) {
        row.x = from_x.row(m, room);
        row.residual = added ? from_residual.row(m, room + aligned) : nullptr;
        row.sum = added ? sum + m * bytes : nullptr;
        row.y = y + m * bytes;
        kernel(row);
      }
    });
  };
  cpu::enqueue(stream(), std::move(run));
}

}  // namespace tiny_llm_ext
