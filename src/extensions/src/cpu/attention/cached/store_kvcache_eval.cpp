// CPU evaluation of StoreKvCache: copies rows, head by head.
#include "store_kvcache.h"

#include "core/checks.h"
#include "cpu/attention/cached/store_tokens.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerByte = 0.1;

cpu::PageSlots slots_of_pages(mx::array& pages, PageLayout layout) {
  const int slot_axis = layout == PageLayout::slots_outside ? 1 : 2, head_axis = 3 - slot_axis;
  const auto stride = [&](int axis) { return pages.strides(axis) * static_cast<int64_t>(pages.itemsize()); };
  return {pages.data<std::byte>(), pages.shape(slot_axis), stride(0), stride(head_axis), stride(slot_axis)};
}

void store(const mx::array& tokens, mx::array& pages, const std::vector<int64_t>& slots, PageLayout layout,
           int threads) {
  const int64_t heads = tokens.shape(1);
  const cpu::RowReader reader(tokens);
  const cpu::PageSlots to = slots_of_pages(pages, layout);
  const double cost = kNanosecondsPerByte * heads * static_cast<double>(reader.row_bytes());
  cpu::parallel_rows(tokens.shape(0), cost, threads, [&](int64_t begin, int64_t end) {
    void* scratch = cpu::thread_scratch(reader.row_bytes());
    cpu::store_tokens(slots.data(), begin, end, heads, reader.row_bytes(), to,
                      [&](int64_t token, int64_t head) { return reader.row(token * heads + head, scratch); });
  });
}

}  // namespace

void StoreKvCache::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& k_cache = inputs[2];
  const int64_t page = k_cache.shape(layout_ == PageLayout::slots_outside ? 1 : 2);
  cpu::wait_for(stream(), {inputs[4]});
  const ReportError report = throws_runtime_error(kStoreKvCache);
  std::vector<int64_t> slots = read_slots(inputs[4], k_cache.shape(0) * page, report);
  check_writable(k_cache, inputs[3], kCacheNames, report);
  for (int i = 0; i < 2; i++) outputs[i].copy_shared_buffer(inputs[2 + i]);
  if (k_cache.size() == 0 || inputs[0].size() == 0) return;
  cpu::dispatch_placed(stream(), inputs, outputs,
                       [slots = std::move(slots), layout = layout_, threads = threads_](
                           const cpu::Arrays& arrays, cpu::Arrays& results) {
                         for (int i = 0; i < 2; i++) store(arrays[i], results[i], slots, layout, threads);
                       });
}

}  // namespace tiny_llm_ext
