// The operations of a decoder block in their order. Its graph builds each as MLX operations, its evaluation
// computes each at once.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "block/decoder_block.h"

namespace tiny_llm_ext {

// What a product does besides multiplying, see `quantized_linear`.
template <class Array>
struct ProductOptions {
  const char* name;  // for who measures
  const Array* residual = nullptr;
  bool gated = false;
  std::optional<int> split = {};
  bool last = false;  // its result is that of the block
};

// The result of a decoder block on x. An Array is an MLX array, or rows in memory. The operations are
// multiply(x, layer, options) as `quantized_linear`, normalise(heads, norm) as `rms_norm`, in place or not,
// and attend(heads) as `cached_attention` on query, key and value.
template <class Array, class Multiply, class Normalise, class Attend>
Array run_decoder_block(const DecoderParts& parts, const Array& x, Multiply multiply, Normalise normalise,
                        Attend attend) {
  typedef ProductOptions<Array> Options;
  std::vector<Array> heads =
      multiply(x, parts.heads, Options{.name = "query, key and value", .split = parts.head_size});
  if (parts.query_norm) heads[0] = normalise(heads[0], *parts.query_norm);
  if (parts.key_norm) heads[1] = normalise(heads[1], *parts.key_norm);
  const Array result_of_heads = attend(std::move(heads));
  const Array attended =
      multiply(result_of_heads, parts.output, Options{.name = "output", .residual = &x})[0];
  const Array hidden = multiply(attended, parts.gate_up, Options{.name = "gate and up", .gated = true})[0];
  return multiply(hidden, parts.down, Options{.name = "down", .residual = &attended, .last = true})[0];
}

}  // namespace tiny_llm_ext
