// Checks of a packed step.
#include "block/packed_step.h"

#include <algorithm>
#include <string>

#include "core/checks.h"
#include "core/divide_up.h"

namespace tiny_llm_ext {
namespace {

std::string of_sequence(int64_t number, size_t sequence) {
  return std::to_string(number) + " for sequence " + std::to_string(sequence);
}

void check_sizes(const PackedStepArguments& given) {
  if (given.page_size < 1) reject(kPackedStep, "page_size", std::to_string(given.page_size), "at least 1");
  if (given.num_pages < 0) reject(kPackedStep, "num_pages", std::to_string(given.num_pages), "at least 0");
  const size_t count = given.new_tokens.size();
  for (auto [argument, size] : {std::pair{"context_lens", given.context_lens.size()},
                                std::pair{"block_tables", given.block_tables.size()}}) {
    if (size != count)
      reject(kPackedStep, argument, std::to_string(size), std::to_string(count) + " as new_tokens");
  }
}

void check_sequence(const PackedStepArguments& given, size_t b) {
  const int64_t new_tokens = given.new_tokens[b], context = given.context_lens[b];
  if (new_tokens < 1) reject(kPackedStep, "new_tokens", of_sequence(new_tokens, b), "at least 1");
  if (context < new_tokens)
    reject(kPackedStep, "context_lens", of_sequence(context, b),
           "at least the " + std::to_string(new_tokens) + " new tokens");
  const std::vector<int32_t>& table = given.block_tables[b];
  const int64_t pages = divide_up(context, given.page_size);
  if (static_cast<int64_t>(table.size()) < pages) {
    reject(kPackedStep, "block_tables", of_sequence(static_cast<int64_t>(table.size()), b),
           "the " + std::to_string(pages) + " pages of " + std::to_string(context) + " tokens");
  }
  for (int64_t page = 0; page < pages; page++) {
    if (table[page] < 0 || table[page] >= given.num_pages) {
      reject(kPackedStep, "block_tables", of_sequence(table[page], b),
             "0 to " + std::to_string(given.num_pages - 1));
    }
  }
}

// Row b has the pages of sequence b, then -1.
mx::array as_table(const PackedStepArguments& given) {
  size_t width = 1;
  for (const std::vector<int32_t>& table : given.block_tables) width = std::max(width, table.size());
  std::vector<int32_t> ids(given.block_tables.size() * width, -1);
  for (size_t b = 0; b < given.block_tables.size(); b++)
    std::copy(given.block_tables[b].begin(), given.block_tables[b].end(), ids.begin() + b * width);
  return mx::array(ids.begin(), {static_cast<int>(given.block_tables.size()), static_cast<int>(width)});
}

}  // namespace

PackedStep::PackedStep(const PackedStepArguments& given)
    : page_size_(given.page_size), num_pages_(given.num_pages), block_table_(as_table(given)) {
  check_sizes(given);
  int64_t row = 0;
  for (size_t b = 0; b < given.new_tokens.size(); b++) {
    check_sequence(given, b);
    const int64_t n_q = given.new_tokens[b], n_k = given.context_lens[b];
    sequences_.push_back({.n_q = n_q,
                          .n_k = n_k,
                          .q_begin = row,
                          .k_begin = 0,
                          .q_rows = n_q,
                          .k_rows = n_k,
                          .entry = 0,
                          .index = static_cast<int64_t>(b)});
    row += n_q;
    positions_end_ = std::max(positions_end_, n_k);
    for (int64_t position = n_k - n_q; position < n_k; position++) {
      positions_.push_back(position);
      slots_.push_back(given.block_tables[b][position / page_size_] * page_size_ + position % page_size_);
    }
  }
  std::vector<int64_t> sorted = slots_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    reject(kPackedStep, "block_tables", "page " + std::to_string(*twice / page_size_) + " for two new tokens",
           "a slot for each new token");
  }
}

}  // namespace tiny_llm_ext
