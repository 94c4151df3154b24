// CPU evaluation of a decoder block: all of its operations in one task of the stream's worker thread.
#include "core/dtype.h"
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"
#include "cpu/block/block_operations.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext {

void DecoderBlock::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  // First, because attention_inputs() refers to the caches: a cache with another reference would be copied.
  const cpu::CacheArrays caches = {kFirstCache, attention_.caches_in_batch(attention_inputs(inputs)),
                                   x.shape(1)};
  const CachedAttentionParams& params = attention_.params();
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, caches,
      [parts = parts_, reader = cpu::RowReader(x), cos = cpu::RowReader(parts_->cos),
       sin = cpu::RowReader(parts_->sin), B = int64_t{x.shape(0)}, L = int64_t{x.shape(1)},
       element = element_of(x.dtype()), offset = params.offset, scale = params.scale, kernels = &kernels_,
       threads = threads_for(cpu::rows_of(x), x.dtype())](std::byte* result,
                                                          const std::vector<cpu::CacheMemory>& memory) {
        const cpu::RowMatrix rows(reader, B * L, size_of(element), threads);
        cpu::BlockOperations(*parts, B * L, element, result, *kernels, threads)
            .run(rows, [&](const std::vector<cpu::BlockRows>& heads, std::byte* attended) {
              const int64_t E = parts->head_size;
              const auto heads_of = [&](const cpu::BlockRows& all) {
                return cpu::RowReader(all.data, size_of(element), E);
              };
              const cpu::NewTokens tokens = {heads_of(heads[0]),
                                             heads_of(heads[1]),
                                             heads_of(heads[2]),
                                             cos,
                                             sin,
                                             B,
                                             L,
                                             heads[0].stride / E,
                                             heads[1].stride / E,
                                             E,
                                             element,
                                             offset,
                                             scale,
                                             parts->traditional};
              cpu::append_and_attend(tokens, memory, attended, *kernels, threads);
            });
      });
}

}  // namespace tiny_llm_ext
