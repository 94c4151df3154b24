// Memory of the outputs, and their state after a failure.
#include "cpu/attention/cached/cache_dispatch.h"

#include <utility>

#include "cpu/runtime/allocate.h"
#include "cpu/runtime/cache_memory.h"
#include "cpu/runtime/output_memory.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext::cpu {
namespace {

// A cache that is copied to new memory.
struct Copy {
  RowReader from;
  int64_t rows;
  OutputMemory to;
};

}  // namespace

void dispatch_on_caches(mx::Stream stream, const Arrays& inputs, Arrays& outputs, const CacheArrays& caches,
                        std::function<void(std::byte* result, const std::vector<CacheMemory>& caches)> work) {
  allocate_for(outputs[0]);
  drop_sibling_references(inputs, outputs);
  std::vector<Copy> copies;
  try {
    for (size_t i = 0; i + 1 < outputs.size(); i++) {
      const CacheState& state = caches.in_batch[i / 2].state;
      const mx::array& cache = inputs[caches.first + i];
      mx::array& grown = outputs[i + 1];
      if (!grow_or_allocate(grown, cache, state, caches.added))
        copies.push_back({RowReader(cache), rows_of(cache), memory_of(grown)});
    }
  } catch (...) {
    // A second evaluation may start from another output, which needs the inputs again.
    for (mx::array& output : outputs) {
      if (output.inputs().empty()) output.inputs() = inputs;
    }
    throw;
  }
  std::vector<CacheMemory> memory;
  for (size_t i = 0; i < caches.in_batch.size(); i++) {
    mx::array &keys = outputs[1 + 2 * i], &values = outputs[2 + 2 * i];
    memory.push_back({keys.data<std::byte>(), values.data<std::byte>(), caches.in_batch[i].first_row,
                      keys.shape(0), keys.shape(2), caches.in_batch[i].state.length});
  }
  enqueue(stream, [work = std::move(work), memory = std::move(memory), copies = std::move(copies),
                   result = memory_of(outputs[0])] {
    try {
      for (const Copy& copy : copies) copy_rows(copy.from, copy.rows, copy.to.data, 1);
      work(result.data, memory);
    } catch (...) {
      fill_with_nan(result);
      for (const Copy& copy : copies) fill_with_nan(copy.to);
      throw;
    }
  });
}

}  // namespace tiny_llm_ext::cpu
