// Products and norms of a decoder block.
#include "cpu/block/block_operations.h"

#include <algorithm>

#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"

namespace tiny_llm_ext::cpu {
namespace {

// Multiply-adds of a block from which one more thread joins its team.
constexpr double kMultiplyAddsPerThread = 5e5;

double multiply_adds(const DecoderParts& parts, int64_t rows) {
  double work = 0;
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down})
    work += static_cast<double>(layer->weights->elements());
  return work * static_cast<double>(rows);
}

// The arrays of a product, with memory.
Arrays new_results(const mx::array& x, const PackedLayer& layer, const ProductOptions& options) {
  Arrays results;
  for (const LayerWeights::Matrix& matrix : layer.weights->matrices()) {
    mx::Shape shape = x.shape();
    shape.back() = static_cast<int>(matrix.outputs);
    if (options.split) {
      shape.back() /= *options.split;
      shape.push_back(*options.split);
    }
    results.push_back(new_array(std::move(shape), x.dtype()));
    if (options.gated) break;
  }
  return results;
}

}  // namespace

BlockTeam::BlockTeam(const DecoderParts& parts, int64_t rows, int threads) {
  const double work = multiply_adds(parts, rows);
  const int useful_threads = static_cast<int>(std::min<double>(threads, work / kMultiplyAddsPerThread));
  if (useful_threads > 1) team_.emplace(useful_threads);
}

Arrays multiply(const mx::array& x, const PackedLayer& layer, const ProductOptions& options,
                const mx::array& block_result, const Kernels& kernels, int threads) {
  const Operation operation(options.name);
  Arrays y = options.last ? Arrays{block_result} : new_results(x, layer, options);
  multiply_quantized({x,
                      *layer.weights,
                      options.residual ? &*options.residual : nullptr,
                      options.gated,
                      kernels,
                      {threads, threads}},
                     y);
  return y;
}

mx::array normalise(mx::array& heads, const FirstNorm& norm, const Kernels& kernels, int threads) {
  const Operation operation("norms of heads");
  const NormRows rows(heads, norm.weight, static_cast<float>(norm.eps), heads.data<std::byte>());
  if (heads.size() > 0) rows.run(kernels.rows[static_cast<int>(element_of(heads.dtype()))], threads);
  return heads;
}

}  // namespace tiny_llm_ext::cpu
