// A decoder block on new tokens as one operation. Starting its operations one by one, with MLX's
// bookkeeping for each of their inputs, would take much of the time of a decoding step.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cached_attention.h"
#include "quantized_linear.h"

namespace tiny_llm_ext {

// Matrices that multiply the same x, and the norm applied to x before.
struct PackedLayer {
  std::vector<QuantizedMatrix> matrices;
  int group_size, bits;
  std::optional<FirstNorm> norm;
  std::shared_ptr<const cpu::LayerWeights> weights = {};  // all of it, once that is evaluated
};

// The parts of a block. The operation holds them; they are not its inputs.
struct DecoderParts {
  PackedLayer heads;                              // query, key and value
  std::optional<FirstNorm> query_norm, key_norm;  // of each head
  mx::array cos, sin;
  PackedLayer output, gate_up, down;
  int head_size;
  bool traditional;
};

// x (B, L, K) through the block: attention with the caches, see `cached_attention`, then feed-forward, both
// with a residual connection. The result has the shape and dtype of x.
std::pair<mx::array, GrownCaches> decoder_block(const std::shared_ptr<const DecoderParts>& parts,
                                                const mx::array& x,
                                                const std::vector<std::optional<TokenCache>>& caches,
                                                const TokenOffsets& offset, mx::StreamOrDevice stream);

// Throws unless the parts fit together.
void check_parts(const DecoderParts& parts);

// Inputs: x, then the keys and values of each cache. Outputs: the result, then the grown keys and values.
class DecoderBlock : public CacheOperation {
 public:
  static constexpr size_t kFirstCache = 1;  // among the inputs

  DecoderBlock(mx::Stream stream, std::shared_ptr<const DecoderParts> parts, CachedAttentionParams attention)
      : CacheOperation("DecoderBlock", stream), parts_(std::move(parts)), attention_(stream, attention) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not fit together; returns whether there is a kernel for them.
  bool check_inputs(const std::vector<mx::array>& inputs) const;

  // Its operations one by one.
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  // The inputs of attention; the heads have no data.
  std::vector<mx::array> attention_inputs(const std::vector<mx::array>& inputs) const;

  std::shared_ptr<const DecoderParts> parts_;
  CachedAttention attention_;
};

}  // namespace tiny_llm_ext
