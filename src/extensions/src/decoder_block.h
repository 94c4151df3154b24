// A block of a decoder on a few new tokens as one operation. To start each of its operations, and MLX's
// account of each of their inputs, is much of the time of a step.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cached_attention.h"
#include "quantized_linear.h"

namespace tiny_llm_ext {

// Matrices that one pass over x goes through, and the norm that x passes first.
struct PackedLayer {
  std::vector<QuantizedMatrix> matrices;
  int group_size, bits;
  std::optional<FirstNorm> norm;
};

// What a block is made from. Its weights are no inputs of the operation: it keeps them.
struct DecoderParts {
  PackedLayer heads;                              // query, key and value
  std::optional<FirstNorm> query_norm, key_norm;  // of each head
  mx::array cos, sin;
  PackedLayer output, gate_up, down;
  int head_size;
  bool traditional;
};

// x (B, L, K) through the block: attention to the caches, which is `cached_attention` of the heads, and feed-
// forward, each added to what goes into it. The result is like x.
std::pair<mx::array, GrownCaches> decoder_block(const std::shared_ptr<const DecoderParts>& parts,
                                                const mx::array& x,
                                                const std::vector<std::optional<TokenCache>>& caches,
                                                const TokenOffsets& offset, mx::StreamOrDevice stream);

// Throws unless the parts fit together.
void check_parts(const DecoderParts& parts);

// Inputs: x, then the keys and values of each cache. Outputs: what comes out, then keys and values.
class DecoderBlock : public OnCaches {
 public:
  static constexpr size_t kFirstCache = 1;  // among the inputs

  DecoderBlock(mx::Stream stream, std::shared_ptr<const DecoderParts> parts, CachedAttentionParams attention)
      : OnCaches("DecoderBlock", stream), parts_(std::move(parts)), attention_(stream, attention) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not fit together; says whether there is a kernel for them.
  bool check_inputs(const std::vector<mx::array>& inputs) const;

  // The operations one after the other.
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  // Those of attention, of which the heads and the result have shapes only.
  std::vector<mx::array> attention_inputs(const std::vector<mx::array>& inputs) const;

  std::shared_ptr<const DecoderParts> parts_;
  CachedAttention attention_;
};

}  // namespace tiny_llm_ext
