// The operation `PackedDecoderBlock`: its checks.
#include "block/packed_block.h"

#include <string>

#include "attention/support.h"
#include "core/checks.h"
#include "core/dtype.h"
#include "store_kvcache.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kPackedBlock = "PackedDecoderBlock";

void match_pages(const mx::array& x, const mx::array& pages, const char* argument, Dims& dims,
                 const DecoderParts& parts, const PackedStep& step) {
  dims.match(argument, pages.shape(), {"P", "Hkv", "page", "E"});
  if (pages.dtype() != x.dtype())
    reject(kPackedBlock, argument, to_text(pages.dtype()), to_text(x.dtype()) + ", the dtype of x");
  const int kv_heads = parts.heads.matrices[1].weight.shape(0) / parts.head_size;
  const mx::Shape expected = {static_cast<int>(step.num_pages()), kv_heads,
                              static_cast<int>(step.page_size()), parts.head_size};
  if (pages.shape() != expected)
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

}  // namespace

std::array<mx::array, 3> packed_decoder_block(const std::shared_ptr<const DecoderParts>& parts,
                                              const mx::array& x, const mx::array& key_pages,
                                              const mx::array& value_pages,
                                              const std::shared_ptr<const PackedStep>& step,
                                              mx::StreamOrDevice stream) {
  const std::vector<mx::array> inputs = {x, key_pages, value_pages};
  auto primitive = std::make_shared<PackedDecoderBlock>(cpu_stream(kPackedBlock, stream), parts, step);
  primitive->check_inputs(inputs);
  const auto outputs = mx::array::make_arrays({x.shape(), key_pages.shape(), value_pages.shape()},
                                              {x.dtype(), x.dtype(), x.dtype()}, primitive, inputs);
  return {outputs[0], outputs[1], outputs[2]};
}

void PackedDecoderBlock::check_inputs(const std::vector<mx::array>& inputs) const {
  const mx::array& x = inputs[0];
  const mx::Shape expected = {1, static_cast<int>(step_->rows()), parts_->heads.norm->weight.shape(0)};
  if (x.shape() != expected)
    reject(kPackedBlock, "x", to_text(x.shape()), to_text(expected) + ", the rows of the step");
  const mx::Dtype dtype = parts_->output.matrices[0].scales.dtype();
  if (x.dtype() != dtype)
    reject(kPackedBlock, "x", to_text(x.dtype()), to_text(dtype) + ", the dtype of its weights");
  Dims dims(kPackedBlock);
  match_pages(x, inputs[1], "key_pages", dims, *parts_, *step_);
  match_pages(x, inputs[2], "value_pages", dims, *parts_, *step_);
  if (inputs[1].is_available() && inputs[2].is_available())
    check_pages(inputs, throws_argument_error(kPackedBlock));
  if (step_->positions_end() > parts_->cos.shape(0)) {
    reject(kPackedBlock, "step", std::to_string(step_->positions_end()) + " positions",
           "at most " + std::to_string(parts_->cos.shape(0)) + ", those of cos and sin");
  }
  if (!has_kernel(*parts_, x)) {
    reject(kPackedBlock, "head_size", std::to_string(parts_->head_size), "a head size with a kernel");
  }
}

void PackedDecoderBlock::check_pages(const std::vector<mx::array>& inputs, const ReportError& report) {
  check_writable(inputs[1], inputs[2], {"key_pages", "value_pages"}, report);
}

std::vector<mx::Shape> PackedDecoderBlock::output_shapes(const std::vector<mx::array>& inputs) {
  check_inputs(inputs);
  return {inputs[0].shape(), inputs[1].shape(), inputs[2].shape()};
}

}  // namespace tiny_llm_ext
