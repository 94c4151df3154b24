// Cached attention: checks the arguments, builds the primitive, and its reference graph.
#include "cached_attention.h"

#include <cmath>
#include <limits>
#include <string>

#include "attention/support.h"
#include "core/checks.h"
#include "core/dtype.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kCachedAttention = "cached_attention";

void check_cache(const mx::array& keys, const mx::array& values, int64_t length, const mx::array& key) {
  Dims dims(kCachedAttention);
  dims.match("key", key.shape(), {"B", "L", "Hkv", "E"});
  dims.match("keys", keys.shape(), {"N", "Hkv", "capacity", "E"});
  dims.match("values", values.shape(), {"N", "Hkv", "capacity", "E"});
  for (auto [argument, x] : {std::pair{"keys", &keys}, std::pair{"values", &values}}) {
    if (x->dtype() != key.dtype())
      reject(kCachedAttention, argument, to_text(x->dtype()), to_text(key.dtype()) + ", the dtype of query");
  }
  const int64_t L = dims["L"], max_length = dims["capacity"] - L;
  if (max_length < 0)
    reject(kCachedAttention, "keys", to_text(keys.shape()), "room for " + std::to_string(L) + " new tokens");
  if (length < 0 || length > max_length) {
    reject(kCachedAttention, "length", std::to_string(length),
           "0 to " + std::to_string(max_length) + ", to have room for " + std::to_string(L) + " more tokens");
  }
}

// The primitive rotates even heads of any size; the attention kernels limit the rest.
bool has_kernel(const mx::array& query, int64_t kv_heads) {
  Problem problem = {};
  problem.Hq = query.shape(2);
  problem.Hkv = kv_heads;
  problem.E = problem.V = query.shape(3);
  problem.dtype = element_of(query.dtype());
  problem.backend = Backend::cpu;
  return fused_kernel(problem).ok;
}

std::vector<mx::Shape> shapes_of_outputs(const std::vector<mx::array>& inputs) {
  const mx::Shape& query = inputs[0].shape();
  std::vector<mx::Shape> shapes = {{query[0], query[1], query[2] * query[3]}};
  for (size_t i = CachedAttention::kFirstCache; i < inputs.size(); i++) shapes.push_back(inputs[i].shape());
  return shapes;
}

}  // namespace

void add_caches(const std::vector<std::optional<TokenCache>>& caches, CachedAttentionParams& params,
                std::vector<mx::array>& inputs) {
  for (const std::optional<TokenCache>& cache : caches) {
    params.caches.push_back(cache ? std::optional(cache->state) : std::nullopt);
    if (cache) inputs.insert(inputs.end(), {cache->keys, cache->values});
  }
}

GrownCaches grown_caches(const std::vector<mx::array>& outputs) {
  GrownCaches caches;
  for (size_t i = 1; i < outputs.size(); i += 2) caches.push_back({outputs[i], outputs[i + 1]});
  return caches;
}

std::pair<mx::array, GrownCaches> cached_attention(const mx::array& query, const mx::array& key,
                                                   const mx::array& value,
                                                   const std::vector<std::optional<TokenCache>>& caches,
                                                   const mx::array& cos, const mx::array& sin,
                                                   const TokenOffsets& offset, std::optional<double> scale,
                                                   bool traditional, mx::StreamOrDevice stream) {
  Dims dims(kCachedAttention);
  dims.match("query", query.shape(), {"B", "L", "Hq", "E"});
  CachedAttentionParams params = {{}, offset, {}, traditional};
  params.scale = scale ? check_scale(kCachedAttention, *scale) : 1 / std::sqrt(static_cast<float>(dims["E"]));
  std::vector<mx::array> inputs = {query, key, value, cos, sin};
  add_caches(caches, params, inputs);
  const std::vector<mx::array> outputs =
      cached_attention(inputs, std::move(params), cpu_stream(kCachedAttention, stream));
  return {outputs[0], grown_caches(outputs)};
}

std::vector<mx::array> cached_attention(const std::vector<mx::array>& inputs, CachedAttentionParams params,
                                        mx::Stream stream) {
  auto primitive = std::make_shared<CachedAttention>(stream, std::move(params));
  if (!primitive->check_inputs(inputs)) return primitive->graph(inputs);
  const std::vector<mx::Dtype> dtypes(inputs.size() - CachedAttention::kFirstCache + 1, inputs[0].dtype());
  return mx::array::make_arrays(shapes_of_outputs(inputs), dtypes, primitive, inputs);
}

bool CachedAttention::check_inputs(const std::vector<mx::array>& inputs) const {
  const mx::array& query = inputs[0];
  check_floating(kCachedAttention, "query", query);
  Dims dims(kCachedAttention);
  dims.match("query", query.shape(), {"B", "L", "Hq", "E"});
  dims.match("key", inputs[1].shape(), {"B", "L", "Hkv", "E"});
  dims.match("value", inputs[2].shape(), {"B", "L", "Hkv", "E"});
  for (auto [argument, x] : {std::pair{"key", &inputs[1]}, std::pair{"value", &inputs[2]}}) {
    if (x->dtype() != query.dtype())
      reject(kCachedAttention, argument, to_text(x->dtype()),
             to_text(query.dtype()) + ", the dtype of query");
  }
  check_heads(kCachedAttention, dims["Hq"], dims["Hkv"]);
  if (dims["E"] == 0) reject(kCachedAttention, "query", to_text(query.shape()), "E of at least 1");
  if (int64_t{dims["Hq"]} * dims["E"] > std::numeric_limits<int>::max())
    reject(kCachedAttention, "query", to_text(query.shape()), "heads that fit into one axis");
  std::visit([&](const auto& given) { check_rotation(kCachedAttention, query, inputs[3], inputs[4], given); },
             params_.offset);

  int64_t rows = 0;
  size_t next = kFirstCache;
  for (const std::optional<CacheState>& cache : params_.caches) {
    if (cache) {
      check_cache(inputs[next], inputs[next + 1], cache->length, inputs[1]);
      rows += inputs[next].shape(0);
      next += 2;
    } else {
      rows++;
    }
  }
  if (rows != dims["B"]) {
    reject(kCachedAttention, "caches", std::to_string(rows) + " rows in all",
           std::to_string(dims["B"]) + " as query");
  }
  return has_kernel(query, dims["Hkv"]);
}

std::vector<CacheInBatch> CachedAttention::caches_in_batch(const std::vector<mx::array>& inputs) const {
  std::vector<CacheInBatch> caches;
  int row = 0;
  for (const std::optional<CacheState>& cache : params_.caches) {
    if (cache) caches.push_back({row, *cache});
    row += cache ? inputs[kFirstCache + 2 * (caches.size() - 1)].shape(0) : 1;
  }
  return caches;
}

std::vector<mx::array> CachedAttention::graph(const std::vector<mx::array>& inputs) {
  const mx::array &query = inputs[0], &key = inputs[1];
  const int L = query.shape(1), heads = query.shape(2), E = query.shape(3);
  const Offsets offset = std::visit([](const auto& given) -> Offsets { return given; }, params_.offset);
  const auto rotated = [&](const mx::array& x) {
    return rope(x, inputs[3], inputs[4], offset, params_.traditional, true, stream());
  };
  const mx::array queries = rotated(query), keys = rotated(key);
  const mx::array values = mx::swapaxes(inputs[2], 1, 2, stream());
  const auto rows_from = [&](const mx::array& x, int first, int rows) {
    mx::Shape stop = x.shape();
    stop[0] = first + rows;
    return mx::slice(x, {first, 0, 0, 0}, stop, stream());
  };
  std::vector<mx::array> attended, outputs = {query};  // `attended` in the order of the rows
  int row = 0;
  const auto add_zero_rows = [&](int next) {
    if (next > row) attended.push_back(mx::zeros({next - row, heads, L, E}, query.dtype(), stream()));
  };
  AttentionOptions options;
  options.scale = params_.scale;
  options.causal = true;
  options.on_fallback = "allow";
  options.return_lse = false;
  options.stream = stream();
  const std::vector<CacheInBatch> in_batch = caches_in_batch(inputs);
  for (size_t i = 0; i < in_batch.size(); i++) {
    const int first = in_batch[i].first_row, begin = static_cast<int>(in_batch[i].state.length),
              end = begin + L;
    const auto append = [&](const mx::array& cache, const mx::array& tokens) {
      mx::Shape stop = cache.shape();
      stop[2] = end;
      return mx::slice_update(cache, rows_from(tokens, first, cache.shape(0)), {0, 0, begin, 0}, stop,
                              stream());
    };
    const auto present = [&](const mx::array& cache) {
      mx::Shape stop = cache.shape();
      stop[2] = end;
      return mx::slice(cache, {0, 0, 0, 0}, stop, stream());
    };
    const mx::array new_keys = append(inputs[kFirstCache + 2 * i], keys);
    const mx::array new_values = append(inputs[kFirstCache + 2 * i + 1], values);
    const int rows = new_keys.shape(0);
    add_zero_rows(first);
    attended.push_back(
        attention(rows_from(queries, first, rows), present(new_keys), present(new_values), options).first);
    row = first + rows;
    outputs.insert(outputs.end(), {new_keys, new_values});
  }
  add_zero_rows(query.shape(0));
  if (attended.empty()) attended.push_back(mx::zeros({0, heads, L, E}, query.dtype(), stream()));
  const mx::array all = mx::swapaxes(mx::concatenate(attended, 0, stream()), 1, 2, stream());
  outputs[0] = mx::flatten(all, -2, -1, stream());
  return outputs;
}

std::vector<mx::array> CacheOperation::jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                           const std::vector<int>&) {
  throw NotImplemented(std::string(function_) + ": jvp is not supported");
}

std::pair<std::vector<mx::array>, std::vector<int>> CacheOperation::vmap(const std::vector<mx::array>&,
                                                                         const std::vector<int>&) {
  throw NotImplemented(std::string(function_) + ": vmap is not supported; give all rows to one call");
}

bool CachedAttention::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const CachedAttention&>(other).params_;
}

// A shapeless compiled graph calls this for each new set of shapes.
std::vector<mx::Shape> CachedAttention::output_shapes(const std::vector<mx::array>& inputs) {
  if (!check_inputs(inputs)) {
    throw NotImplemented(std::string(kCachedAttention) + ": no fused kernel: heads of " +
                         std::to_string(inputs[0].shape(3)) +
                         "; compiled without shapeless=True, attention_reference runs");
  }
  return shapes_of_outputs(inputs);
}

}  // namespace tiny_llm_ext
