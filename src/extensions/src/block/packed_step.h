// One forward pass of new tokens of many sequences, whose keys and values are in pages: where each row of the
// packed batch belongs. Checked once, then shared by all layers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/problem.h"
#include "mlx/mlx.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

// Sequence b has new_tokens[b] rows, after those of the sequences before it. They are the last of its
// context_lens[b] tokens; token t is in slot t % page_size of page block_tables[b][t / page_size].
struct PackedStepArguments {
  std::vector<int64_t> new_tokens, context_lens;
  std::vector<std::vector<int32_t>> block_tables;
  int64_t page_size, num_pages;
};

class PackedStep {
 public:
  // Throws for lengths and pages that do not fit together, and for two rows that have the same slot.
  explicit PackedStep(const PackedStepArguments& arguments);

  int64_t rows() const { return static_cast<int64_t>(slots_.size()); }
  int64_t page_size() const { return page_size_; }
  int64_t num_pages() const { return num_pages_; }

  const std::vector<Sequence>& sequences() const { return sequences_; }
  // int32 (B, pages of the longest sequence), evaluated.
  const mx::array& block_table() const { return block_table_; }
  // Of each row: its position in its sequence, and its slot, counted over all pages.
  const std::vector<int64_t>& positions() const { return positions_; }
  const std::vector<int64_t>& slots() const { return slots_; }
  int64_t positions_end() const { return positions_end_; }  // one more than the largest position

 private:
  int64_t page_size_, num_pages_, positions_end_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<int64_t> positions_, slots_;
  mx::array block_table_;
};

inline constexpr const char* kPackedStep = "PackedStep";

}  // namespace tiny_llm_ext
