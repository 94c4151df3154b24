// CPU evaluation of a decoder block: all of its operations in one task of the stream's worker thread.
#include <algorithm>

#include "core/dtype.h"
#include "core/product_shape.h"
#include "cpu/attention/cached/append_and_attend.h"
#include "cpu/attention/cached/cache_dispatch.h"
#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/thread_pool.h"
#include "decoder_block_steps.h"

namespace tiny_llm_ext {
namespace {

// Multiply-adds of a block from which one more thread is woken and kept spinning. Most operations of a block
// are too small to wake a thread for, in small models all of them.
constexpr double kMultiplyAddsPerThread = 5e5;

double multiply_adds(const DecoderParts& parts, int64_t rows) {
  double work = 0;
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down}) {
    for (const QuantizedMatrix& matrix : layer->matrices)
      work += static_cast<double>(matrix.scales.size()) * layer->group_size;
  }
  return work * rows;
}

// The arrays of a product, with memory.
cpu::Arrays new_results(const mx::array& x, const PackedLayer& layer, const ProductOptions& options) {
  cpu::Arrays results;
  for (const QuantizedMatrix& matrix : layer.matrices) {
    mx::Shape shape = product_shape(x, matrix.weight);
    if (options.split) {
      shape.back() /= *options.split;
      shape.push_back(*options.split);
    }
    results.push_back(cpu::new_array(std::move(shape), x.dtype()));
    if (options.gated) break;
  }
  return results;
}

}  // namespace

void DecoderBlock::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  // First, because attention_inputs() refers to the caches: a cache with another reference would be copied.
  const cpu::CacheArrays caches = {kFirstCache, attention_.caches_in_batch(attention_inputs(inputs)),
                                   inputs[0].shape(1)};
  cpu::dispatch_on_caches(
      stream(), inputs, outputs, caches,
      [parts = parts_, params = attention_.params(), in_batch = caches.in_batch, kernels = &kernels_,
       threads = threads_](const cpu::Arrays& arrays, cpu::Arrays& results,
                           const std::vector<bool>& in_place) {
        const double work = multiply_adds(*parts, cpu::rows_of(arrays[0]));
        const int useful_threads = static_cast<int>(std::min<double>(threads, work / kMultiplyAddsPerThread));
        std::optional<cpu::KeepSpinning> spinning;
        if (useful_threads > 1) spinning.emplace(useful_threads);

        const auto multiply = [&](const mx::array& x, const PackedLayer& layer,
                                  const ProductOptions& options) {
          cpu::Arrays y = options.last ? cpu::Arrays{results[0]} : new_results(x, layer, options);
          const QuantizedParams quantized = {layer.group_size, layer.bits, kernels, threads};
          cpu::multiply_quantized({x, layer.matrices, layer.norm, options.residual, options.gated, quantized},
                                  y);
          return y;
        };
        const auto normalise = [&](mx::array& heads, const FirstNorm& norm) {
          const cpu::NormRows rows(heads, norm.weight, static_cast<float>(norm.eps), heads.data<std::byte>());
          if (heads.size() > 0) rows.run(kernels->rows[static_cast<int>(element_of(heads.dtype()))], threads);
          return heads;
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
