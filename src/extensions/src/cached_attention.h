// Attention of a step's tokens to all that came before: they are rotated, go into the caches and attend to
// them, in one operation. To a model that decodes, each of these alone costs more to start than to run.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/cache_state.h"
#include "rows/row_operations.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Keys and values (N, Hkv, capacity, E) of N rows.
struct TokenCache {
  mx::array keys, values;
  CacheState state;
};

// Keys and values of each cache, with the new tokens.
using GrownCaches = std::vector<std::pair<mx::array, mx::array>>;

// Where the tokens of each row begin in their sequences: one number for all, or one for each.
using TokenOffsets = std::variant<int64_t, std::vector<int64_t>>;

// Query (B, L, Hq, E), key and value (B, L, Hkv, E) of L new tokens for each of B rows, whose caches come in
// the order of the rows; none is a single row without a cache, which attends to nothing: its result is 0.
// Query and key are rotated as by `rope`; a token sees the tokens of its cache, those before it and itself. A
// cache's memory takes the new tokens where nobody else holds it, or those places, see
// cpu/runtime/cache_memory.h. The result is (B, L, Hq * E).
std::pair<mx::array, GrownCaches> cached_attention(const mx::array& query, const mx::array& key,
                                                   const mx::array& value,
                                                   const std::vector<std::optional<TokenCache>>& caches,
                                                   const mx::array& cos, const mx::array& sin,
                                                   const TokenOffsets& offset, std::optional<double> scale,
                                                   bool traditional, mx::StreamOrDevice stream);

struct CachedAttentionParams {
  std::vector<std::optional<CacheState>> caches;  // in order; none: a row without a cache
  TokenOffsets offset;
  float scale;
  bool traditional;

  bool operator==(const CachedAttentionParams&) const = default;
};

// Notes the state of caches, and puts their keys and values behind other inputs of an operation.
void give_caches(const std::vector<std::optional<TokenCache>>& caches, CachedAttentionParams& params,
                 std::vector<mx::array>& inputs);

// The keys and values behind the first output of such an operation.
GrownCaches grown_caches(const std::vector<mx::array>& outputs);

// The operation on inputs as its primitive takes them, with that one's outputs.
std::vector<mx::array> cached_attention(const std::vector<mx::array>& inputs, CachedAttentionParams params,
                                        mx::Stream stream);

// Which rows of the batch a cache holds.
struct CachePlace {
  int first_row;
  CacheState state;
};

// An operation that writes to caches: they belong to one step, which has no forward mode and is not mapped.
class OnCaches : public RowOperation {
 public:
  using RowOperation::RowOperation;

  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
};

// Inputs: query, key, value, cos, sin, then the keys and values of each cache. Outputs: what was attended to,
// then keys and values.
class CachedAttention : public OnCaches {
 public:
  static constexpr size_t kFirstCache = 5;  // among the inputs

  CachedAttention(mx::Stream stream, CachedAttentionParams params)
      : OnCaches("cached_attention", stream), params_(std::move(params)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not fit together; says whether there is a kernel for them.
  bool check_inputs(const std::vector<mx::array>& inputs) const;

  // Rotation, append and attention as operations of their own.
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

  // Of every cache among inputs that fit together.
  std::vector<CachePlace> places(const std::vector<mx::array>& inputs) const;

  const CachedAttentionParams& params() const { return params_; }

 private:
  CachedAttentionParams params_;
};

}  // namespace tiny_llm_ext
