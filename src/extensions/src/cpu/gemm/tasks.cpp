// Cuts products into tasks.
#include "cpu/gemm/tasks.h"

#include <algorithm>

#include "core/divide_up.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace {

constexpr int64_t kOutputUnit = 16;  // multiples of it leave no lane idle

}  // namespace

int64_t outputs_of_task(int64_t N, int64_t row_blocks, int threads, int64_t max_outputs) {
  int64_t best = max_outputs, min_work = INT64_MAX;
  for (int64_t outputs = max_outputs; outputs >= kOutputUnit; outputs -= kOutputUnit) {
    const int64_t work = divide_up(divide_up(N, outputs) * row_blocks, threads) * outputs;
    if (work < min_work) min_work = work, best = outputs;
  }
  return best;
}

PackedX::PackedX(int64_t rows, int64_t panel_rows, int64_t panel_bytes, int64_t max_panels)
    : rows_(rows),
      panel_rows_(panel_rows),
      panel_bytes_(panel_bytes),
      panels_(divide_up(rows, panel_rows)),
      block_panels_(divide_up(panels_, divide_up(panels_, max_panels))),
      row_blocks_(divide_up(panels_, block_panels_)),
      memory_(allocate(bytes_of({panel_bytes, panels_}) + kCacheLine)) {
  // Aligned, so that vectors and tiles lie in as few cache lines as possible.
  const auto address = reinterpret_cast<uintptr_t>(memory_.buffer().raw_ptr());
  data_ = reinterpret_cast<std::byte*>(round_up(address, kCacheLine));
}

void PackedX::pack(int64_t pieces, int threads, const Pack& pack) const {
  if (panel_bytes_ == 0) return;
  parallel_for(panels_ * pieces, threads, [&](int64_t item) {
    const int64_t panel = item / pieces, row = panel * panel_rows_;
    pack(row, rows_of_panel(row), packed(panel), item % pieces);
  });
}

void PackedX::run(int64_t output_tasks, bool in_ranges, int threads, const Run& run) const {
  const auto parallel = in_ranges ? parallel_ranges : parallel_for;
  parallel(row_blocks_ * output_tasks, threads, [&](int64_t item) {
    // Output tasks of one row block follow each other: its rows stay in the caches.
    const int64_t panel = item / output_tasks * block_panels_, row = panel * panel_rows_;
    run(row, std::min(block_panels_ * panel_rows_, rows_ - row), packed(panel), item % output_tasks);
  });
}

}  // namespace tiny_llm_ext::cpu
