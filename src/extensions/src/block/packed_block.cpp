// The operation `PackedDecoderBlocks`: its checks.
#include "block/packed_block.h"

#include <string>

#include "attention/support.h"
#include "core/checks.h"
#include "core/dtype.h"
#include "store_kvcache.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kPackedBlock = "PackedDecoderBlocks";

void match_pages(const mx::array& x, const mx::array& pages, const char* argument, const DecoderParts& parts,
                 const PackedStep& step) {
  if (pages.dtype() != x.dtype())
    reject(kPackedBlock, argument, to_text(pages.dtype()), to_text(x.dtype()) + ", the dtype of x");
  const int kv_heads = parts.heads.matrices[1].weight.shape(0) / parts.head_size;
  const mx::Shape expected = {static_cast<int>(step.num_pages()), kv_heads,
                              static_cast<int>(step.page_size()), parts.head_size};
  if (pages.shape() == expected) return;
  Dims(kPackedBlock).match(argument, pages.shape(), {"P", "Hkv", "page", "E"});
  reject(kPackedBlock, argument, to_text(pages.shape()), to_text(expected) + ", as the block and the step");
}

bool has_kernel(const DecoderParts& parts, const mx::array& x) {
  Problem problem = {};
  problem.Hq = parts.heads.matrices[0].weight.shape(0) / parts.head_size;
  problem.Hkv = parts.heads.matrices[1].weight.shape(0) / parts.head_size;
  problem.E = problem.V = parts.head_size;
  problem.dtype = element_of(x.dtype());
  problem.packed = true;
  problem.backend = Backend::cpu;
  return fused_kernel(problem).ok;
}

void check_block(const DecoderParts& parts, const mx::array& x, const mx::array& keys,
                 const mx::array& values, const PackedStep& step) {
  const mx::Shape expected = {1, static_cast<int>(step.rows()), parts.heads.norm->weight.shape(0)};
  if (x.shape() != expected)
    reject(kPackedBlock, "x", to_text(x.shape()), to_text(expected) + ", the rows of the step");
  const mx::Dtype dtype = parts.output.matrices[0].scales.dtype();
  if (x.dtype() != dtype)
    reject(kPackedBlock, "x", to_text(x.dtype()), to_text(dtype) + ", the dtype of its weights");
  match_pages(x, keys, "key_pages", parts, step);
  match_pages(x, values, "value_pages", parts, step);
  if (keys.is_available() && values.is_available())
    PackedDecoderBlocks::check_pages(keys, values, throws_argument_error(kPackedBlock));
  if (step.positions_end() > parts.cos.shape(0)) {
    reject(kPackedBlock, "step", std::to_string(step.positions_end()) + " positions",
           "at most " + std::to_string(parts.cos.shape(0)) + ", those of cos and sin");
  }
  if (!has_kernel(parts, x)) {
    reject(kPackedBlock, "head_size", std::to_string(parts.head_size), "a head size with a kernel");
  }
}

}  // namespace

PackedResult packed_decoder_blocks(const Blocks& blocks, const mx::array& x,
                                   const std::vector<mx::array>& key_pages,
                                   const std::vector<mx::array>& value_pages,
                                   const std::shared_ptr<const PackedStep>& step, mx::StreamOrDevice stream) {
  if (blocks.empty()) reject(kPackedBlock, "blocks", "none", "at least one");
  for (auto [argument, size] :
       {std::pair{"key_pages", key_pages.size()}, std::pair{"value_pages", value_pages.size()}}) {
    if (size != blocks.size())
      reject(kPackedBlock, argument, std::to_string(size), std::to_string(blocks.size()) + " as blocks");
  }
  std::vector<mx::array> inputs = {x};
  for (size_t i = 0; i < blocks.size(); i++) {
    inputs.push_back(key_pages[i]);
    inputs.push_back(value_pages[i]);
  }
  auto primitive = std::make_shared<PackedDecoderBlocks>(cpu_stream(kPackedBlock, stream), blocks, step);
  std::vector<mx::Shape> shapes = primitive->output_shapes(inputs);
  const std::vector<mx::Dtype> dtypes(inputs.size(), x.dtype());
  const auto outputs = mx::array::make_arrays(std::move(shapes), dtypes, primitive, inputs);
  PackedResult result = {outputs[0], {}, {}};
  for (size_t i = 1; i < outputs.size(); i += 2) {
    result.key_pages.push_back(outputs[i]);
    result.value_pages.push_back(outputs[i + 1]);
  }
  return result;
}

void PackedDecoderBlocks::check_inputs(const std::vector<mx::array>& inputs) const {
  for (size_t i = 0; i < blocks_.size(); i++)
    check_block(*blocks_[i], inputs[0], inputs[2 * i + 1], inputs[2 * i + 2], *step_);
}

void PackedDecoderBlocks::check_pages(const mx::array& keys, const mx::array& values,
                                      const ReportError& report) {
  check_writable(keys, values, {"key_pages", "value_pages"}, report);
}

std::vector<mx::Shape> PackedDecoderBlocks::output_shapes(const std::vector<mx::array>& inputs) {
  check_inputs(inputs);
  std::vector<mx::Shape> shapes;
  for (const mx::array& input : inputs) shapes.push_back(input.shape());
  return shapes;
}

}  // namespace tiny_llm_ext
