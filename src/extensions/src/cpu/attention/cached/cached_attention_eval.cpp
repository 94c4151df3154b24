// CPU evaluation of CachedAttention.
#include "cached_attention.h"
#include "core/dtype.h"
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"

namespace tiny_llm_ext {

void CachedAttention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &query = inputs[0], &key = inputs[1];
  const int threads = threads_for(query.shape(0) * int64_t{query.shape(1)}, query.dtype());
  const cpu::NewTokens tokens = {cpu::RowReader(query),
                                 cpu::RowReader(key),
                                 cpu::RowReader(inputs[2]),
                                 cpu::RowReader(inputs[3]),
                                 cpu::RowReader(inputs[4]),
                                 query.shape(0),
                                 query.shape(1),
                                 query.shape(2),
                                 key.shape(2),
                                 query.shape(3),
                                 element_of(query.dtype()),
                                 params_.offset,
                                 params_.scale,
                                 params_.traditional};
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, {kFirstCache, caches_in_batch(inputs), query.shape(1)},
      [tokens, kernels = &kernels_, threads](std::byte* result, const std::vector<cpu::CacheMemory>& caches) {
        cpu::append_and_attend(tokens, caches, result, *kernels, threads);
      });
}

}  // namespace tiny_llm_ext
