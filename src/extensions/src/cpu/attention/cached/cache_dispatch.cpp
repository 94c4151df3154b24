// Memory of the outputs, and their state after a failure.
#include "cpu/attention/cached/cache_dispatch.h"

#include "cpu/runtime/allocate.h"
#include "cpu/runtime/cache_memory.h"
#include "cpu/runtime/output_memory.h"

namespace tiny_llm_ext::cpu {
namespace {

// After a failure: a cache in place keeps the tokens it had, all else is NaN.
void invalidate(Arrays& outputs, const std::vector<bool>& in_place) {
  for (size_t i = 0; i < outputs.size(); i++) {
    if (i == 0 || !in_place[i - 1]) fill_with_nan(outputs[i]);
  }
}

}  // namespace

void dispatch_on_caches(mx::Stream stream, const Arrays& inputs, Arrays& outputs, const CacheArrays& caches,
                        std::function<void(const Arrays&, Arrays&, const std::vector<bool>&)> work) {
  allocate_for(outputs[0]);
  drop_sibling_references(inputs, outputs);
  std::vector<bool> in_place;
  try {
    for (size_t i = 0; i + 1 < outputs.size(); i++) {
      const CacheState& state = caches.in_batch[i / 2].state;
      in_place.push_back(grow_or_allocate(outputs[i + 1], inputs[caches.first + i], state, caches.added));
    }
  } catch (...) {
    // A second evaluation may start from another output, which needs the inputs again.
    for (mx::array& output : outputs) {
      if (output.inputs().empty()) output.inputs() = inputs;
    }
    throw;
  }
  dispatch_placed(stream, inputs, outputs,
                  [work = std::move(work), in_place](const Arrays& arrays, Arrays& results) {
                    try {
                      work(arrays, results, in_place);
                    } catch (...) {
                      invalidate(results, in_place);
                      throw;
                    }
                  });
}

}  // namespace tiny_llm_ext::cpu
