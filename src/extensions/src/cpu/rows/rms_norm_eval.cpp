// CPU evaluation of `rms_norm`.
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/output_memory.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {

void RmsNorm::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &x = inputs[0], &weight = inputs[1];
  cpu::reuse_or_allocate(outputs[0], {&x});
  if (x.size() == 0) return;
  const int64_t rows = cpu::rows_of(x);
  const cpu::NormRows norm(cpu::RowReader(x), rows, weight, eps_, outputs[0].data<std::byte>());
  cpu::enqueue(stream(), [norm, kernels = &kernels_of(x), threads = threads_for(rows, x.dtype())] {
    norm.run(*kernels, threads);
  });
}

}  // namespace tiny_llm_ext
