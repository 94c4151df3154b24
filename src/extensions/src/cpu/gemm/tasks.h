// How products y (M, N) = x (M, K) w^T, dense or quantized, are cut into tasks for the threads: x is packed
// once, in pieces of rows, then each task multiplies a block of rows, some pieces, with some outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

// Outputs of a task of a blocked product, at most `most`, such that the thread with the most tasks has the
// least to do; among equals the largest.
int64_t outputs_of_task(int64_t N, int64_t row_blocks, int threads, int64_t most);

class PackedX {
 public:
  // Pieces of `piece_rows` rows, which take `piece_bytes` bytes packed; blocks of at most `max_panels`
  // pieces, of equal size.
  PackedX(int64_t rows, int64_t piece_rows, int64_t piece_bytes, int64_t max_panels);
  PackedX(const PackedX&) = delete;
  PackedX& operator=(const PackedX&) = delete;

  int64_t count() const { return count_; }

  // Calls pack(row, rows, to) for each piece: `rows` rows from `row` on. Nothing to pack if a piece has no
  // bytes.
  using Pack = std::function<void(int64_t row, int64_t rows, void* to)>;
  void pack(int threads, const Pack& pack) const;

  // Calls run(row, rows, packed, n) for each block and each of `output_tasks` numbers n. With `in_ranges`, a
  // thread begins with a range of neighbouring tasks, for tasks that stream the weights.
  using Run = std::function<void(int64_t row, int64_t rows, const void* packed, int64_t n)>;
  void run(int64_t output_tasks, bool in_ranges, int threads, const Run& run) const;

 private:
  std::byte* packed(int64_t piece) const { return data_ + piece * piece_bytes_; }

  int64_t rows_, piece_rows_, piece_bytes_, pieces_, block_pieces_, count_;
  mlx::core::allocator::Data memory_;
  std::byte* data_;
};

}  // namespace tiny_llm_ext::cpu
