// The operation `DecoderBlock`: its checks and its graph.
#include "block/decoder_block.h"

#include <cmath>
#include <string>

#include "block/decoder_block_steps.h"
#include "core/checks.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kDecoderBlock = "DecoderBlock";

// An array without data, for checks of shape and type.
mx::array shape_only(mx::Shape shape, const mx::array& like) {
  return mx::array(std::move(shape), like.dtype(), nullptr, {});
}

CachedAttentionParams attention_params(const DecoderParts& parts, const TokenOffsets& offset) {
  return {{}, offset, 1 / std::sqrt(static_cast<float>(parts.head_size)), parts.traditional};
}

std::vector<mx::Shape> shapes_of(const std::vector<mx::array>& inputs) {
  std::vector<mx::Shape> shapes;
  for (const mx::array& input : inputs) shapes.push_back(input.shape());
  return shapes;
}

void check_axes(const mx::array& array, size_t axes) {
  if (array.ndim() != axes)
    reject(kDecoderBlock, "arrays", to_text(array.shape()),
           std::to_string(axes) + (axes == 1 ? " axis" : " axes"));
}

}  // namespace

std::pair<mx::array, GrownCaches> decoder_block(const std::shared_ptr<const DecoderParts>& parts,
                                                const mx::array& x,
                                                const std::vector<std::optional<TokenCache>>& caches,
                                                const TokenOffsets& offset, mx::StreamOrDevice stream) {
  CachedAttentionParams params = attention_params(*parts, offset);
  std::vector<mx::array> inputs = {x};
  add_caches(caches, params, inputs);
  auto primitive =
      std::make_shared<DecoderBlock>(cpu_stream(kDecoderBlock, stream), parts, std::move(params));
  const bool kernel = primitive->check_inputs(inputs);
  const std::vector<mx::Dtype> dtypes(inputs.size(), x.dtype());
  const std::vector<mx::array> outputs =
      kernel ? mx::array::make_arrays(shapes_of(inputs), dtypes, primitive, inputs)
             : primitive->graph(inputs);
  return {outputs[0], grown_caches(outputs)};
}

// Builds the graph of the block, whose operations check their arguments; evaluates nothing.
void check_parts(const DecoderParts& parts) {
  for (const PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down}) {
    if (layer->norm) check_axes(layer->norm->weight, 1);
    for (const QuantizedMatrix& matrix : layer->matrices) check_axes(matrix.weight, 2);
  }
  const mx::array& like = parts.output.matrices[0].scales;
  const mx::array x = shape_only({1, 1, parts.heads.norm->weight.shape(0)}, like);
  const int kv_heads = parts.heads.matrices[1].weight.shape(0) / parts.head_size;
  const mx::array cache = shape_only({1, kv_heads, 1, parts.head_size}, like);
  CachedAttentionParams params = attention_params(parts, 0);
  params.caches = {CacheState{0, false}};
  DecoderBlock(mx::default_stream(mx::Device::cpu), std::make_shared<DecoderParts>(parts), std::move(params))
      .graph({x, cache, cache});
}

std::vector<mx::array> DecoderBlock::attention_inputs(const std::vector<mx::array>& inputs) const {
  const mx::array& x = inputs[0];
  std::vector<mx::array> given;
  for (const QuantizedMatrix& matrix : parts_->heads.matrices) {
    const int heads = matrix.weight.shape(0) / parts_->head_size;
    given.push_back(shape_only({x.shape(0), x.shape(1), heads, parts_->head_size}, x));
  }
  given.insert(given.end(), {parts_->cos, parts_->sin});
  given.insert(given.end(), inputs.begin() + kFirstCache, inputs.end());
  return given;
}

bool DecoderBlock::check_inputs(const std::vector<mx::array>& inputs) const {
  const mx::array &x = inputs[0], &weight = parts_->heads.norm->weight;
  Dims dims(kDecoderBlock);
  dims.match("x", x.shape(), {"B", "L", "K"});
  if (dims["K"] != weight.shape(0))
    reject(kDecoderBlock, "x", to_text(x.shape()), "(B, L, " + std::to_string(weight.shape(0)) + ")");
  const mx::Dtype dtype = parts_->output.matrices[0].scales.dtype();
  if (x.dtype() != dtype)
    reject(kDecoderBlock, "x", to_text(x.dtype()), to_text(dtype) + ", the dtype of its weights");
  return attention_.check_inputs(attention_inputs(inputs));
}

std::vector<mx::array> DecoderBlock::graph(const std::vector<mx::array>& inputs) {
  std::vector<mx::array> outputs;
  const mx::array result = run_decoder_block(
      *parts_, inputs[0],
      [&](const mx::array& x, const PackedLayer& layer, const ProductOptions<mx::array>& options) {
        const auto residual = options.residual ? std::optional(*options.residual) : std::nullopt;
        return quantized_linear(x, layer.matrices, layer.group_size, layer.bits, layer.norm, residual,
                                options.gated, options.split, stream());
      },
      [&](const mx::array& heads, const FirstNorm& norm) {
        return rms_norm(heads, norm.weight, norm.eps, stream());
      },
      [&](std::vector<mx::array> heads) {
        heads.insert(heads.end(), {parts_->cos, parts_->sin});
        heads.insert(heads.end(), inputs.begin() + kFirstCache, inputs.end());
        outputs = cached_attention(heads, attention_.params(), stream());
        return outputs[0];
      });
  outputs[0] = result;
  return outputs;
}

bool DecoderBlock::is_equivalent(const mx::Primitive& other) const {
  const auto& same = static_cast<const DecoderBlock&>(other);
  return parts_ == same.parts_ && attention_.params() == same.attention_.params();
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> DecoderBlock::output_shapes(const std::vector<mx::array>& inputs) {
  if (!check_inputs(inputs)) {
    throw NotImplemented(std::string(kDecoderBlock) + ": no fused kernel: heads of " +
                         std::to_string(parts_->head_size) +
                         "; compiled without shapeless=True, attention_reference runs");
  }
  return shapes_of(inputs);
}

}  // namespace tiny_llm_ext
