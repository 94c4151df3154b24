// The operations of a decoder block in their order. Its graph builds each as MLX operations, its evaluation
// computes each at once.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "block/decoder_block.h"

namespace tiny_llm_ext {

// What a product does besides multiplying, see `quantized_linear`.
struct ProductOptions {
  const char* name;  // for who measures
  std::optional<mx::array> residual = {};
  bool gated = false;
  std::optional<int> split = {};
  bool last = false;  // its result is that of the block
};

// The outputs of a DecoderBlock from its inputs. The operations are multiply(x, layer, options) as
// `quantized_linear`, normalise(heads, norm) as `rms_norm`, in place or not, and attend(inputs) as
// `cached_attention`.
template <class Multiply, class Normalise, class Attend>
std::vector<mx::array> run_decoder_block(const DecoderParts& parts, const std::vector<mx::array>& inputs,
                                         Multiply multiply, Normalise normalise, Attend attend) {
  const mx::array& x = inputs[0];
  std::vector<mx::array> heads =
      multiply(x, parts.heads, ProductOptions{.name = "query, key and value", .split = parts.head_size});
  if (parts.query_norm) heads[0] = normalise(heads[0], *parts.query_norm);
  if (parts.key_norm) heads[1] = normalise(heads[1], *parts.key_norm);
  heads.insert(heads.end(), {parts.cos, parts.sin});
  heads.insert(heads.end(), inputs.begin() + DecoderBlock::kFirstCache, inputs.end());
  std::vector<mx::array> outputs = attend(std::move(heads));
  const mx::array attended =
      multiply(outputs[0], parts.output, ProductOptions{.name = "output", .residual = x})[0];
  const mx::array hidden =
      multiply(attended, parts.gate_up, ProductOptions{.name = "gate and up", .gated = true})[0];
  outputs[0] =
      multiply(hidden, parts.down, ProductOptions{.name = "down", .residual = attended, .last = true})[0];
  return outputs;
}

}  // namespace tiny_llm_ext
