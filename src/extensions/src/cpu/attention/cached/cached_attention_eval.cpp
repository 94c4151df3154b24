// CPU evaluation of CachedAttention.
#include "cached_attention.h"
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"

namespace tiny_llm_ext {

void CachedAttention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const cpu::CacheArrays caches = {kFirstCache, caches_in_batch(inputs), inputs[0].shape(1)};
  const int threads = threads_for(inputs[0].shape(0) * int64_t{inputs[0].shape(1)}, inputs[0].dtype());
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, caches,
      [params = params_, in_batch = caches.in_batch, kernels = &kernels_, threads](
          const cpu::Arrays& arrays, cpu::Arrays& results, const std::vector<bool>& in_place) {
        cpu::append_and_attend(arrays, results, params, in_batch, *kernels, threads, in_place);
      });
}

}  // namespace tiny_llm_ext
