// CPU evaluation of silu(gate) * up: dense arrays in one piece, others row by row.
#include <algorithm>

#include "attention/tiles.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/scratch.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerProduct = 0.5;
// Dense arrays are cut here, so that a single long row is shared out too. A multiple of every vector.
constexpr int64_t kPiece = 4096;

}  // namespace

void SiluMultiply::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &gate = inputs[0], &up = inputs[1];
  mx::array& out = outputs[0];
  const bool dense = gate.flags().row_contiguous && up.flags().row_contiguous;
  cpu::place_output(out, {&gate, &up});
  if (out.size() == 0) return;
  const auto kernel = kernels_of(out).silu_multiply;
  std::byte* const y = out.data<std::byte>();
  if (dense) {
    cpu::enqueue(stream(), [=, threads = threads_, size = int64_t(out.size()), itemsize = out.itemsize(),
                            gate = gate.data<std::byte>(), up = up.data<std::byte>()] {
      const double cost = kNanosecondsPerProduct * std::min(size, kPiece);
      cpu::for_rows(divide_up(size, kPiece), cost, threads, [&](int64_t begin, int64_t end) {
        const int64_t from = begin * kPiece, count = std::min(size, end * kPiece) - from;
        kernel(gate + from * itemsize, up + from * itemsize, y + from * itemsize, count);
      });
    });
    return;
  }
  const int64_t width = out.ndim() == 0 ? 1 : out.shape(-1);
  cpu::enqueue(stream(), [=, threads = threads_, rows = int64_t(out.size()) / width,
                          gates = cpu::RowReader(gate), ups = cpu::RowReader(up)] {
    cpu::for_rows(rows, kNanosecondsPerProduct * width, threads, [&](int64_t begin, int64_t end) {
      const size_t bytes = gates.row_bytes();
      auto* room = static_cast<std::byte*>(cpu::thread_scratch(2 * bytes));
      for (int64_t m = begin; m < end; m++)
        kernel(gates.row(m, room), ups.row(m, room + bytes), y + m * bytes, width);
    });
  });
}

}  // namespace tiny_llm_ext
