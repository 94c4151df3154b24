// CPU evaluation of `argmax`, `top_k` and `logsumexp`.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

// Candidates that are gathered beyond 2 k before the k best of them are kept.
constexpr int64_t kMoreCandidates = 256;

// The element of a rank: the inverse of rank_of in select-inl.h.
float number_of(uint64_t rank) {
  const auto order = static_cast<uint32_t>(rank >> 32);
  if (order == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(order & 0x80000000 ? order & 0x7fffffff : ~order);
}

// Writes the ranks of the k best elements of a row to the front of `ranks`, in order. Only elements above the
// k-th best so far are candidates: soon these are few, and the scan is one comparison an element.
void choose_best(const cpu::RowKernels& kernels, const std::byte* row, int64_t count, int64_t k,
                 uint64_t* ranks) {
  cpu::ScanTask task = {};
  task.row = row;
  task.count = count;
  task.threshold = std::numeric_limits<float>::quiet_NaN();
  task.ranks = ranks;
  task.capacity = 2 * k + kMoreCandidates;
  const auto best_first = std::greater<uint64_t>();
  while (task.next < count) {
    kernels.scan(task);
    if (task.found <= k) continue;
    std::nth_element(ranks, ranks + k - 1, ranks + task.found, best_first);
    task.found = k;
    task.threshold = number_of(ranks[k - 1]);
  }
  std::sort(ranks, ranks + k, best_first);
}

// Calls work(m, elements, scratch) for every row of x, with `bytes` bytes of scratch.
template <class Work>
void enqueue_for_rows_of(const mx::array& x, double nanoseconds_per_element, int threads, mx::Stream stream,
                         size_t bytes, Work work) {
  const cpu::RowReader reader(x);
  const cpu::RowWork all = {cpu::rows_of(x), nanoseconds_per_element * x.shape(-1), threads,
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
  enqueue_for_rows_of(x, 0.05, threads_, stream(), 0,
                      [argmax = kernels_of(x).argmax, count = x.shape(-1), out = outputs[0].data<uint32_t>()](
                          int64_t m, const std::byte* row, std::byte*) {
                        out[m] = static_cast<uint32_t>(argmax(row, count));
                      });
}

void LogSumExp::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  cpu::allocate_for(outputs[0]);
  if (x.size() == 0) return;
  enqueue_for_rows_of(
      x, 0.3, threads_, stream(), 0,
      [logsumexp = kernels_of(x).logsumexp, count = x.shape(-1), out = outputs[0].data<float>()](
          int64_t m, const std::byte* row, std::byte*) { out[m] = logsumexp(row, count); });
}

void TopK::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  for (mx::array& output : outputs) cpu::allocate_for(output);
  if (x.size() == 0) return;
  const size_t ranks_bytes = (2 * int64_t{k_} + kMoreCandidates) * sizeof(uint64_t);
  enqueue_for_rows_of(x, 0.2, threads_, stream(), ranks_bytes,
                      [k = k_, kernels = &kernels_of(x), count = x.shape(-1), itemsize = x.itemsize(),
                       numbers = outputs[0].data<std::byte>(), indices = outputs[1].data<uint32_t>()](
                          int64_t m, const std::byte* row, std::byte* scratch) {
                        auto* ranks = reinterpret_cast<uint64_t*>(scratch);
                        choose_best(*kernels, row, count, k, ranks);
                        for (int64_t i = m * k, j = 0; j < k; i++, j++) {
                          indices[i] = ~static_cast<uint32_t>(ranks[j]);
                          std::memcpy(numbers + i * itemsize, row + indices[i] * itemsize, itemsize);
                        }
                      });
}

}  // namespace tiny_llm_ext
