// CPU evaluation of a decoder block: all of its operations in one task of the stream's worker thread.
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"
#include "cpu/block/block_operations.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"

namespace tiny_llm_ext {

void DecoderBlock::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  // First, because attention_inputs() refers to the caches: a cache with another reference would be copied.
  const cpu::CacheArrays caches = {kFirstCache, attention_.caches_in_batch(attention_inputs(inputs)),
                                   inputs[0].shape(1)};
  const int threads = threads_for(cpu::rows_of(inputs[0]), inputs[0].dtype());
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, caches,
      [parts = parts_, params = attention_.params(), in_batch = caches.in_batch, kernels = &kernels_,
       threads](const cpu::Arrays& arrays, cpu::Arrays& results, const std::vector<bool>& in_place) {
        const cpu::BlockTeam team(*parts, cpu::rows_of(arrays[0]), threads);
        const auto multiply = [&](const mx::array& x, const PackedLayer& layer,
                                  const ProductOptions& options) {
          return cpu::multiply(x, layer, options, results[0], *kernels, threads);
        };
        const auto normalise = [&](mx::array& heads, const FirstNorm& norm) {
          return cpu::normalise(heads, norm, *kernels, threads);
        };
        const auto attend = [&](const cpu::Arrays& heads) {
          const mx::array& query = heads[0];
          cpu::Arrays grown = results;
          grown[0] = cpu::new_array({query.shape(0), query.shape(1), query.shape(2) * query.shape(3)},
                                    query.dtype());
          cpu::append_and_attend(heads, grown, params, in_batch, *kernels, threads, in_place);
          return grown;
        };
        run_decoder_block(*parts, arrays, multiply, normalise, attend);
      });
}

}  // namespace tiny_llm_ext
