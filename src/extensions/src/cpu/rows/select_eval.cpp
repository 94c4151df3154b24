// CPU evaluation of `argmax`, `top_k` and `logsumexp`.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "core/divide_up.h"
#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/thread_pool.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

// Candidates that are gathered beyond 2 k before the k best of them are kept.
constexpr int64_t kMoreCandidates = 256;
// Elements of an item of an argmax over fewer rows than threads.
constexpr int64_t kArgMaxPiece = 4096;
constexpr double kArgMaxNsPerElement = 0.05, kLogSumExpNsPerElement = 0.3, kTopKNsPerElement = 0.2;

// The element of a key: the inverse of key_of in select-inl.h.
float value_of(uint64_t key) {
  const auto order = static_cast<uint32_t>(key >> 32);
  if (order == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(order & 0x80000000 ? order & 0x7fffffff : ~order);
}

// Writes the sort_keys of the k best elements of a row to the front of `sort_keys`, in order. Only elements
// above the k-th best so far are candidates: soon these are few, and find_above is one comparison an element.
void choose_best(const cpu::RowKernels& kernels, const std::byte* row, int64_t count, int64_t k,
                 uint64_t* sort_keys) {
  cpu::FindAboveTask task = {};
  task.row = row;
  task.count = count;
  task.threshold = std::numeric_limits<float>::quiet_NaN();
  task.sort_keys = sort_keys;
  task.capacity = 2 * k + kMoreCandidates;
  const auto best_first = std::greater<uint64_t>();
  while (task.next < count) {
    kernels.find_above(task);
    if (task.found <= k) continue;
    std::nth_element(sort_keys, sort_keys + k - 1, sort_keys + task.found, best_first);
    task.found = k;
    task.threshold = value_of(sort_keys[k - 1]);
  }
  std::sort(sort_keys, sort_keys + k, best_first);
}

// Calls work(m, elements, scratch) for every row of x, with `bytes` bytes of scratch.
template <class Work>
void enqueue_for_rows_of(const mx::array& x, double ns_per_element, int threads, mx::Stream stream,
                         size_t bytes, Work work) {
  const cpu::RowReader reader(x);
  const cpu::RowWork all = {cpu::rows_of(x), ns_per_element * x.shape(-1), threads,
                            bytes + reader.row_bytes()};
  cpu::enqueue_rows(stream, all, [=, work = std::move(work)](int64_t m, std::byte* scratch) {
    work(m, reader.row(m, scratch + bytes), scratch);
  });
}

}  // namespace

void ArgMax::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  cpu::allocate_for(outputs[0]);
  if (x.size() == 0) return;
  const int threads = threads_for(cpu::rows_of(x), x.dtype());
  const cpu::RowReader reader(x);
  const auto argmax = kernels_of(x).argmax;
  auto* const out = outputs[0].data<uint32_t>();
  const int64_t rows = cpu::rows_of(x), count = x.shape(-1), itemsize = x.itemsize();
  if (rows >= threads || count <= kArgMaxPiece || !reader.stride()) {
    enqueue_for_rows_of(x, kArgMaxNsPerElement, threads, stream(), 0,
                        [=](int64_t m, const std::byte* row, std::byte*) {
                          out[m] = static_cast<uint32_t>(argmax(row, count));
                        });
    return;
  }
  cpu::enqueue(stream(), [=] {
    const cpu::Operation operation("argmax");
    const int64_t pieces = divide_up(count, kArgMaxPiece);
    std::vector<int64_t> best(rows * pieces);  // of each piece
    // In ranges: as in the product that made the logits, so that a thread has its part in its caches.
    cpu::parallel_ranges(rows * pieces, threads, [&](int64_t item) {
      const int64_t begin = item % pieces * kArgMaxPiece;
      const std::byte* const piece = reader.row(item / pieces, nullptr) + begin * itemsize;
      best[item] = begin + argmax(piece, std::min(kArgMaxPiece, count - begin));
    });
    std::vector<std::byte> elements(pieces * itemsize);
    for (int64_t m = 0; m < rows; m++) {
      const int64_t* const best_of_row = best.data() + m * pieces;
      for (int64_t i = 0; i < pieces; i++)
        std::memcpy(elements.data() + i * itemsize, reader.row(m, nullptr) + best_of_row[i] * itemsize,
                    itemsize);
      out[m] = static_cast<uint32_t>(best_of_row[argmax(elements.data(), pieces)]);
    }
  });
}

void LogSumExp::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  cpu::allocate_for(outputs[0]);
  if (x.size() == 0) return;
  enqueue_for_rows_of(
      x, kLogSumExpNsPerElement, threads_for(cpu::rows_of(x), x.dtype()), stream(), 0,
      [logsumexp = kernels_of(x).logsumexp, count = x.shape(-1), out = outputs[0].data<float>()](
          int64_t m, const std::byte* row, std::byte*) { out[m] = logsumexp(row, count); });
}

void TopK::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  for (mx::array& output : outputs) cpu::allocate_for(output);
  if (x.size() == 0) return;
  const size_t keys_bytes = (2 * int64_t{k_} + kMoreCandidates) * sizeof(uint64_t);
  enqueue_for_rows_of(x, kTopKNsPerElement, threads_for(cpu::rows_of(x), x.dtype()), stream(), keys_bytes,
                      [k = k_, kernels = &kernels_of(x), count = x.shape(-1), itemsize = x.itemsize(),
                       values = outputs[0].data<std::byte>(), indices = outputs[1].data<uint32_t>()](
                          int64_t m, const std::byte* row, std::byte* scratch) {
                        auto* sort_keys = reinterpret_cast<uint64_t*>(scratch);
                        choose_best(*kernels, row, count, k, sort_keys);
                        for (int64_t i = m * k, j = 0; j < k; i++, j++) {
                          indices[i] = ~static_cast<uint32_t>(sort_keys[j]);
                          std::memcpy(values + i * itemsize, row + indices[i] * itemsize, itemsize);
                        }
                      });
}

}  // namespace tiny_llm_ext
