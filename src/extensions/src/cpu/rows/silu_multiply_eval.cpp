// CPU evaluation of `silu_multiply`: dense arrays as one long row, others row by row.
#include <algorithm>

#include "core/divide_up.h"
#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/output_memory.h"
#include "cpu/runtime/rows.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNsPerGated = 0.5;
// Dense arrays are cut into pieces, so that threads share a single long row too. A multiple of every vector.
constexpr int64_t kPiece = 4096;

}  // namespace

void SiluMultiply::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &gate = inputs[0], &up = inputs[1];
  mx::array& out = outputs[0];
  const bool dense = gate.flags().row_contiguous && up.flags().row_contiguous;
  cpu::reuse_or_allocate(out, {&gate, &up});
  if (out.size() == 0) return;
  const int threads = threads_for(cpu::rows_of(out), out.dtype());
  const auto kernel = kernels_of(out).silu_multiply;
  std::byte* const y = out.data<std::byte>();
  if (dense) {
    cpu::enqueue(stream(), [=, size = int64_t(out.size()), itemsize = out.itemsize(),
                            gate = gate.data<std::byte>(), up = up.data<std::byte>()] {
      const double cost = kNsPerGated * std::min(size, kPiece);
      cpu::parallel_rows(divide_up(size, kPiece), cost, threads, [&](int64_t begin, int64_t end) {
        const int64_t from = begin * kPiece, count = std::min(size, end * kPiece) - from;
        kernel(gate + from * itemsize, up + from * itemsize, y + from * itemsize, count);
      });
    });
    return;
  }
  const cpu::RowReader gates(gate), ups(up);
  const size_t bytes = gates.row_bytes();
  const int64_t width = out.shape(-1);
  cpu::enqueue_rows(stream(), {cpu::rows_of(out), kNsPerGated * width, threads, 2 * bytes},
                    [=](int64_t m, std::byte* scratch) {
                      kernel(gates.row(m, scratch), ups.row(m, scratch + bytes), y + m * bytes, width);
                    });
}

}  // namespace tiny_llm_ext
