// Cuts products y (M, N) = x (M, K) w^T, dense or quantized, into tasks for the threads: x is packed once, in
// panels of rows, then a task multiplies up to `max_panels` panels (MC rows) with NC outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// NC of a task: the multiple of 16 below `max_outputs`, or `max_outputs` itself, that minimises the work of
// the busiest thread; ties go to the larger NC.
int64_t outputs_of_task(int64_t N, int64_t row_blocks, int threads, int64_t max_outputs);

class PackedX {
 public:
  // Panels of `panel_rows` rows, `panel_bytes` bytes each; row blocks of at most `max_panels` panels, all of
  // the same number.
  PackedX(int64_t rows, int64_t panel_rows, int64_t panel_bytes, int64_t max_panels);
  PackedX(const PackedX&) = delete;
  PackedX& operator=(const PackedX&) = delete;

  int64_t row_blocks() const { return row_blocks_; }

  int64_t panels() const { return panels_; }
  // The panel of a row, and its first row.
  void* panel_of(int64_t row) const { return packed(row / panel_rows_); }
  int64_t first_row(int64_t row) const { return row / panel_rows_ * panel_rows_; }
  int64_t rows_of_panel(int64_t first) const { return std::min(panel_rows_, rows_ - first); }

  // Calls pack(row, rows, to, piece) for each piece of each panel: `rows` rows from `row` on. Nothing to pack
  // if panels have no bytes.
  using Pack = std::function<void(int64_t row, int64_t rows, void* to, int64_t piece)>;
  void pack(int64_t pieces, int threads, const Pack& pack) const;

  // Calls run(row, rows, packed, output_task) for each row block and each output_task < output_tasks. With
  // `in_ranges`, a thread begins with a range of neighbouring tasks, for tasks that stream the weights.
  using Run = std::function<void(int64_t row, int64_t rows, const void* packed, int64_t output_task)>;
  void run(int64_t output_tasks, bool in_ranges, int threads, const Run& run) const;

 private:
  std::byte* packed(int64_t panel) const { return data_ + panel * panel_bytes_; }

  int64_t rows_, panel_rows_, panel_bytes_, panels_, block_panels_, row_blocks_;
  mlx::core::allocator::Data memory_;
  std::byte* data_;
};

}  // namespace tiny_llm_ext::cpu
