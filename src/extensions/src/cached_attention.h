// Attention of a step's tokens to all that came before: they are rotated, go into the caches and attend to
// them, in one operation. To a model that decodes, each of these alone costs more to start than to run.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "row_operations.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Keys and values (N, Hkv, capacity, E) of N rows, of which `length` tokens are there.
struct TokenCache {
  mx::array keys, values;
  int64_t length;
};

struct CachedAttentionResult {
  mx::array attended;                                   // (B, L, Hq * E)
  std::vector<std::pair<mx::array, mx::array>> caches;  // keys and values of each, with the new tokens
};

// Query (B, L, Hq, E), key and value (B, L, Hkv, E) of L new tokens for each of B rows, whose caches come in
// the order of the rows; none is a single row without a cache, which attends to nothing: its result is 0.
// Query and key are rotated as by `rope`; a token sees the tokens of its cache, those before it and itself. A
// cache's memory takes the new tokens where nobody else holds it.
CachedAttentionResult cached_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                                       const std::vector<std::optional<TokenCache>>& caches,
                                       const mx::array& cos, const mx::array& sin,
                                       const std::variant<int64_t, std::vector<int64_t>>& offset,
                                       std::optional<double> scale, bool traditional,
                                       mx::StreamOrDevice stream);

struct CachedAttentionParams {
  struct Place {
    int first_row;  // of the cache's rows in the batch
    int64_t length;

    bool operator==(const Place&) const = default;
  };

  std::vector<Place> caches;
  std::variant<int64_t, std::vector<int64_t>> offset;
  float scale;
  bool traditional;

  bool operator==(const CachedAttentionParams&) const = default;
};

// Inputs: query, key, value, cos, sin, then the keys and values of each cache. Outputs: what was attended to,
// then keys and values.
class CachedAttention : public RowOperation {
 public:
  static constexpr size_t kFirstCache = 5;  // among the inputs

  CachedAttention(mx::Stream stream, CachedAttentionParams params)
      : RowOperation("cached_attention", stream), params_(std::move(params)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Rotation, append and attention as operations of their own.
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  CachedAttentionParams params_;
};

}  // namespace tiny_llm_ext
