// Cuts products into tasks.
#include "cpu/gemm/tasks.h"

#include <algorithm>

#include "core/divide_up.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace {

constexpr int64_t kOutputUnit = 16;       // blocks of a multiple of so many outputs leave no lane idle
constexpr int64_t kPackedAlignment = 64;  // vectors and tiles lie in as few cache lines as possible

}  // namespace

int64_t outputs_of_task(int64_t N, int64_t row_blocks, int threads, int64_t most) {
  int64_t best = most, min_work = INT64_MAX;
  for (int64_t outputs = most; outputs >= kOutputUnit; outputs -= kOutputUnit) {
    const int64_t work = divide_up(divide_up(N, outputs) * row_blocks, threads) * outputs;
    if (work < min_work) min_work = work, best = outputs;
  }
  return best;
}

PackedX::PackedX(int64_t rows, int64_t piece_rows, int64_t piece_bytes, int64_t max_panels)
    : rows_(rows),
      piece_rows_(piece_rows),
      piece_bytes_(piece_bytes),
      pieces_(divide_up(rows, piece_rows)),
      block_pieces_(divide_up(pieces_, divide_up(pieces_, max_panels))),
      count_(divide_up(pieces_, block_pieces_)),
      memory_(allocate(bytes_of({piece_bytes, pieces_}) + kPackedAlignment)) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.buffer().raw_ptr());
  data_ =
      reinterpret_cast<std::byte*>((address + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment);
}

void PackedX::pack(int threads, const Pack& pack) const {
  if (piece_bytes_ == 0) return;
  parallel_for(pieces_, threads, [&](int64_t piece) {
    const int64_t row = piece * piece_rows_;
    pack(row, std::min(piece_rows_, rows_ - row), packed(piece));
  });
}

void PackedX::run(int64_t output_tasks, bool in_ranges, int threads, const Run& run) const {
  const auto parallel = in_ranges ? parallel_ranges : parallel_for;
  parallel(count_ * output_tasks, threads, [&](int64_t item) {
    // The rows of a block stay in the caches while tasks read the weights.
    const int64_t piece = item / output_tasks * block_pieces_, row = piece * piece_rows_;
    run(row, std::min(block_pieces_ * piece_rows_, rows_ - row), packed(piece), item % output_tasks);
  });
}

}  // namespace tiny_llm_ext::cpu
