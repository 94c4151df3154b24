// Runs a row operation on the stream's worker thread and the thread pool.
#pragma once

#include <cstddef>
#include <utility>

#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

struct RowWork {
  int64_t rows;
  double ns_per_row;
  int threads;  // at most
  size_t scratch_bytes;
};

// Calls work(row, scratch) for every row, on the worker thread of the stream and the thread pool.
template <class Work>
void enqueue_rows(mlx::core::Stream stream, RowWork all, Work work) {
  enqueue(stream, [all, work = std::move(work)] {
    parallel_rows(all.rows, all.ns_per_row, all.threads, [&](int64_t begin, int64_t end) {
      auto* scratch = static_cast<std::byte*>(thread_scratch(all.scratch_bytes));
      for (int64_t row = begin; row < end; row++) work(row, scratch);
    });
  });
}

}  // namespace tiny_llm_ext::cpu
