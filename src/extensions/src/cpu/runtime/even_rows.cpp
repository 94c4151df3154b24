// Rows that lie unevenly, or have gaps between their elements, are gathered by all threads.
#include "cpu/runtime/even_rows.h"

#include <algorithm>
#include <cstring>

#include "attention/tiles.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

int64_t rows_of(const mx::array& x) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < static_cast<int>(x.ndim()); axis++) rows *= x.shape(axis);
  return rows;
}

EvenRows::EvenRows(int64_t count, int64_t width, int64_t itemsize)
    : stride_(width), copy_(allocate(bytes_of({count, width, itemsize}))) {
  data_ = place();
}

namespace {

constexpr int64_t kRowsPerCopy = 64;

// Whether all rows are one that the array repeats.
bool is_one_row(const mx::array& x) {
  for (int axis = 0; axis + 1 < static_cast<int>(x.ndim()); axis++) {
    if (x.shape(axis) > 1 && x.strides(axis) != 0) return false;
  }
  return true;
}

}  // namespace

EvenRows::EvenRows(const mx::array& x, int threads) {
  const RowReader reader(x);
  if (auto same = reader.stride()) {
    data_ = x.data<std::byte>();
    stride_ = *same;
    return;
  }
  const bool once = is_one_row(x);
  const int64_t count = once ? 1 : rows_of(x), bytes = reader.row_bytes();
  copy_.emplace(allocate(bytes_of({count, bytes})));
  std::byte* const to = place();
  parallel_for(divide_up(count, kRowsPerCopy), threads, [&](int64_t item) {
    for (int64_t row = item * kRowsPerCopy; row < std::min(count, (item + 1) * kRowsPerCopy); row++) {
      const std::byte* from = reader.row(row, to + row * bytes);
      if (from != to + row * bytes) std::memcpy(to + row * bytes, from, bytes);
    }
  });
  data_ = to;
  stride_ = once ? 0 : x.shape(-1);
}

}  // namespace tiny_llm_ext::cpu
