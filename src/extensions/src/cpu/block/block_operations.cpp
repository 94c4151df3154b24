// Products and norms of a decoder block.
#include "cpu/block/block_operations.h"

#include <algorithm>

#include "core/product_shape.h"
#include "cpu/quantized/eval.h"
#include "cpu/rows/norm_rows.h"
#include "cpu/runtime/allocate.h"

namespace tiny_llm_ext::cpu {
namespace {

// Multiply-adds of a block from which one more thread is woken and kept spinning.
constexpr double kMultiplyAddsPerThread = 5e5;

double multiply_adds(const DecoderParts& parts, int64_t rows) {
  double work = 0;
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down}) {
    for (const QuantizedMatrix& matrix : layer->matrices)
      work += static_cast<double>(matrix.scales.size()) * layer->group_size;
  }
  return work * static_cast<double>(rows);
}

// The arrays of a product, with memory.
Arrays new_results(const mx::array& x, const PackedLayer& layer, const ProductOptions& options) {
  Arrays results;
  for (const QuantizedMatrix& matrix : layer.matrices) {
    mx::Shape shape = product_shape(x, matrix.weight);
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

KeepThreadsAwake::KeepThreadsAwake(const DecoderParts& parts, int64_t rows, int threads) {
  const double work = multiply_adds(parts, rows);
  const int useful_threads = static_cast<int>(std::min<double>(threads, work / kMultiplyAddsPerThread));
  if (useful_threads > 1) spinning_.emplace(useful_threads);
}

Arrays multiply(const mx::array& x, const PackedLayer& layer, const ProductOptions& options,
                const mx::array& block_result, const Kernels& kernels, int threads) {
  Arrays y = options.last ? Arrays{block_result} : new_results(x, layer, options);
  const QuantizedParams quantized = {layer.group_size, layer.bits, &kernels, {threads, threads}};
  multiply_quantized({x, layer.matrices, layer.norm, options.residual, options.gated, quantized}, y);
  return y;
}

mx::array normalise(mx::array& heads, const FirstNorm& norm, const Kernels& kernels, int threads) {
  const NormRows rows(heads, norm.weight, static_cast<float>(norm.eps), heads.data<std::byte>());
  if (heads.size() > 0) rows.run(kernels.rows[static_cast<int>(element_of(heads.dtype()))], threads);
  return heads;
}

}  // namespace tiny_llm_ext::cpu
