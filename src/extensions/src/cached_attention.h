// Attention of new tokens over key/value caches in one operation: rotate queries and keys, append keys and
// values to the caches, attend. In a decode step, each of these alone costs more to start than to run.
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

// Keys and values of each cache, including the new tokens.
using GrownCaches = std::vector<std::pair<mx::array, mx::array>>;

// Query (B, L, Hq, E), key and value (B, L, Hkv, E) are L new tokens of each of B rows. The caches are in the
// order of the rows; an entry without a cache is one row whose result is 0. Query and key are rotated as by
// `rope`. A token sees the tokens of its cache, the new tokens before it and itself. New tokens are written
// into the memory of the cache if no other array uses it or their slots, see cpu/runtime/cache_memory.h. The
// result is (B, L, Hq * E).
std::pair<mx::array, GrownCaches> cached_attention(const mx::array& query, const mx::array& key,
                                                   const mx::array& value,
                                                   const std::vector<std::optional<TokenCache>>& caches,
                                                   const mx::array& cos, const mx::array& sin,
                                                   const TokenOffsets& offset, std::optional<double> scale,
                                                   bool traditional, mx::StreamOrDevice stream);

struct CachedAttentionParams {
  std::vector<std::optional<CacheState>> caches;  // in the order of the rows; none: a row without a cache
  TokenOffsets offset;
  float scale;
  bool traditional;

  bool operator==(const CachedAttentionParams&) const = default;
};

// Adds the states of caches to `params`, and their keys and values to `inputs`.
void add_caches(const std::vector<std::optional<TokenCache>>& caches, CachedAttentionParams& params,
                std::vector<mx::array>& inputs);

// The outputs after the first, as caches.
GrownCaches grown_caches(const std::vector<mx::array>& outputs);

// The same with the inputs and outputs of CachedAttention.
std::vector<mx::array> cached_attention(const std::vector<mx::array>& inputs, CachedAttentionParams params,
                                        mx::Stream stream);

// A cache and its first row in the batch.
struct CacheInBatch {
  int first_row;
  CacheState state;
};

// An operation that writes to caches. It has no jvp and no vmap.
class CacheOperation : public RowOperation {
 public:
  using RowOperation::RowOperation;

  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
};

// Inputs: query, key, value, cos, sin, then the keys and values of each cache. Outputs: the result, then the
// keys and values of each cache.
class CachedAttention : public CacheOperation {
 public:
  static constexpr size_t kFirstCache = 5;  // among the inputs

  CachedAttention(mx::Stream stream, CachedAttentionParams params)
      : CacheOperation("cached_attention", stream), params_(std::move(params)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

  // Throws for inputs that do not match; returns whether a kernel runs them.
  bool check_inputs(const std::vector<mx::array>& inputs) const;

  // Rotation, append and attention as separate operations.
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

  // Of valid inputs.
  std::vector<CacheInBatch> caches_in_batch(const std::vector<mx::array>& inputs) const;

  const CachedAttentionParams& params() const { return params_; }

 private:
  CachedAttentionParams params_;
};

}  // namespace tiny_llm_ext
