// Products and norms of a decoder block.
#include "cpu/block/block_operations.h"

#include <algorithm>

#include "core/divide_up.h"
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

int64_t padded_bytes(int64_t rows, int64_t width, Element element) {
  return round_up(bytes_of({rows, width, size_of(element)}), kCacheLine);
}

// Of the heads, the result of attention, that of the product with it, and the gated one. One allocation: each
// array of MLX costs cache lines that the weights have driven out.
int64_t bytes_of_results(const DecoderParts& parts, int64_t rows, Element element) {
  int64_t bytes = kCacheLine;
  for (const LayerWeights::Matrix& heads : parts.heads.weights->matrices())
    bytes += padded_bytes(rows, heads.outputs, element);
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up})
    bytes += padded_bytes(rows, layer->weights->matrices()[0].outputs, element);
  return bytes;
}

std::byte* aligned(void* memory) {
  return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<intptr_t>(memory), kCacheLine));
}

}  // namespace

BlockOperations::BlockOperations(const DecoderParts& parts, int64_t rows, Element element, std::byte* result,
                                 const Kernels& kernels, int threads)
    : parts_(parts),
      rows_(rows),
      element_(element),
      result_(result),
      kernels_(kernels),
      threads_(threads),
      memory_(allocate(bytes_of_results(parts, rows, element))),
      free_(aligned(memory_.buffer().raw_ptr())) {
  const int useful_threads =
      static_cast<int>(std::min<double>(threads, multiply_adds(parts, rows) / kMultiplyAddsPerThread));
  if (useful_threads > 1) team_.emplace(useful_threads);
}

BlockRows BlockOperations::new_rows(int64_t width) {
  const BlockRows rows = {free_, width};
  free_ += padded_bytes(rows_, width, element_);
  return rows;
}

std::vector<BlockRows> BlockOperations::multiply(const BlockRows& x, const PackedLayer& layer,
                                                 const ProductOptions<BlockRows>& options) {
  const Operation operation(options.name);
  std::vector<BlockRows> results;
  std::vector<std::byte*> y;
  for (const LayerWeights::Matrix& matrix : layer.weights->matrices()) {
    results.push_back(options.last ? BlockRows{result_, matrix.outputs} : new_rows(matrix.outputs));
    y.push_back(results.back().data);
    if (options.gated) break;
  }
  const auto view = [this](const BlockRows& rows) {
    return RowMatrix(rows.data, rows.stride, size_of(element_));
  };
  std::optional<RowMatrix> residual;
  if (options.residual) residual.emplace(view(*options.residual));
  multiply_quantized({view(x),
                      rows_,
                      element_,
                      *layer.weights,
                      residual ? &*residual : nullptr,
                      options.gated,
                      kernels_,
                      {threads_, threads_}},
                     y);
  return results;
}

BlockRows BlockOperations::normalise(const BlockRows& heads, const FirstNorm& norm) const {
  const Operation operation("norms of heads");
  const int64_t rows = rows_ * heads.stride / parts_.head_size;
  const RowReader reader(heads.data, size_of(element_), parts_.head_size);
  NormRows(reader, rows, norm.weight, static_cast<float>(norm.eps), heads.data)
      .run(kernels_.rows[static_cast<int>(element_)], threads_);
  return heads;
}

}  // namespace tiny_llm_ext::cpu
