// The front door of attention, check -> route, and the primitive's identity. Transforms:
// attention/transforms.cpp.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "attention/checks.h"
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "cpu/isa.h"
#include "cpu/pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kFunction = "flash_attention";
constexpr const char* kReference = "attention_reference";

void check_query_key_value(const char* function, Dims& dims, const mx::array& q, const mx::array& k,
                           const mx::array& v) {
  dims.match("query", q.shape(), {"B...", "Hq", "L", "E"});
  dims.match("key", k.shape(), {"B...", "Hkv", "S", "E"});
  dims.match("value", v.shape(), {"B...", "Hkv", "S", "V"});
  check_floating(function, "query", q);
  for (auto [argument, x] : {std::pair{"key", &k}, std::pair{"value", &v}}) {
    if (x->dtype() != q.dtype()) {
      reject(function, argument, to_text(x->dtype()), to_text(q.dtype()) + ", the dtype of query");
    }
  }
  for (const char* size : {"Hq", "Hkv", "E", "V"}) {
    const char* argument = *size == 'H'   ? (size[1] == 'q' ? "query" : "key")
                           : *size == 'E' ? "query"
                                          : "value";
    if (dims[size] < 1)
      reject(function, argument, std::string(size) + " = 0", std::string(size) + " of at least 1");
  }
  if (dims["Hq"] % dims["Hkv"] != 0) {
    reject(function, "query", std::to_string(dims["Hq"]) + " heads",
           "a multiple of the " + std::to_string(dims["Hkv"]) + " heads of key");
  }
}

// Aligned on the right, every axis of `shape` is 1 or equal to that of `target`.
bool broadcasts_to(const mx::Shape& shape, const mx::Shape& target) {
  if (shape.size() > target.size()) return false;
  return std::equal(shape.rbegin(), shape.rend(), target.rbegin(),
                    [](int size, int wanted) { return size == 1 || size == wanted; });
}

void check_mask(const char* function, const mx::array& mask, const mx::Shape& scores) {
  if (mask.dtype() != mx::bool_ && mask.dtype() != mx::float32 && mask.dtype() != mx::float16 &&
      mask.dtype() != mx::bfloat16) {
    reject(function, "mask", to_text(mask.dtype()), "bool (True: attend), float32, float16 or bfloat16");
  }
  if (!broadcasts_to(mask.shape(), scores)) {
    reject(function, "mask", to_text(mask.shape()), "a shape that broadcasts to " + to_text(scores));
  }
}

float check_softcap(const char* function, double softcap) {
  float value = static_cast<float>(softcap);
  if (!(value > 0) || !std::isfinite(value)) {
    reject(function, "softcap", to_text(softcap), "a finite number above 0, or None");
  }
  return value;
}

// The limits to the left and right of a row's position, kUnbounded for none.
std::pair<int64_t, int64_t> check_window(const char* function, const AttentionOptions& options, bool causal) {
  constexpr const char* kExpected = "a number of keys >= 1, or (left, right) with -1 for no limit";
  std::pair<int64_t, int64_t> limits{-1, -1};
  if (auto keys = std::get_if<int64_t>(&options.window)) {
    if (*keys < 1) reject(function, "window", std::to_string(*keys), kExpected);
    limits = causal ? std::pair{*keys - 1, int64_t{0}} : std::pair{*keys / 2, (*keys - 1) / 2};
  } else if (auto sides = std::get_if<std::pair<int64_t, int64_t>>(&options.window)) {
    limits = *sides;
  }
  auto [left, right] = limits;
  if (left < -1 || right < -1) {
    reject(function, "window", "(" + std::to_string(left) + ", " + std::to_string(right) + ")", kExpected);
  }
  auto bounded = [](int64_t keys) { return keys == -1 ? kUnbounded : std::min(keys, kUnbounded); };
  return {bounded(left), causal ? 0 : bounded(right)};
}

mx::array check_sinks(const char* function, Dims& dims, const mx::array& sinks, mx::Stream stream) {
  dims.match("sinks", sinks.shape(), {"Hq"});
  check_floating(function, "sinks", sinks);
  return mx::astype(sinks, mx::float32, stream);
}

mx::array check_lengths(const char* function, Dims& dims, const char* argument, const Lengths& lengths) {
  dims.match(argument, lengths.values.shape(), {"B..."});
  if (lengths.values.dtype() != mx::int32 && lengths.values.dtype() != mx::int64) {
    reject(function, argument, to_text(lengths.values.dtype()), "int32 or int64");
  }
  return lengths.values;
}

[[noreturn]] void refuse_length(const char* argument, std::string got, std::string expected) {
  reject(kFunction, argument, got, expected);
}

const cpu::Kernels& check_isa(const char* function, const std::optional<std::string>& isa) {
  if (!isa) return cpu::active_kernels();
  std::string names;
  for (const std::string& name : cpu::available_isas()) {
    if (name == *isa) return cpu::kernels_named(name);
    names += (names.empty() ? "" : ", ") + name;
  }
  reject(function, "isa", "'" + *isa + "'", "one of " + names);
}

int check_threads(const char* function, const std::optional<int>& threads) {
  if (!threads) return cpu::default_threads();
  if (*threads < 1) reject(function, "threads", std::to_string(*threads), "at least 1");
  return *threads;
}

// A call whose arguments were found to be right.
struct Call {
  AttentionInputs inputs;
  AttentionParams params;
  mx::Stream stream;

  Problem problem() const { return make_problem(inputs, params, stream.device); }
};

Call check(const char* function, const mx::array& q, const mx::array& k, const mx::array& v,
           const AttentionOptions& options) {
  Call call{{q, k, v}, {}, mx::to_stream(options.stream)};
  Dims dims(function);
  check_query_key_value(function, dims, q, k, v);

  bool causal = options.causal;
  if (auto kind = std::get_if<std::string>(&options.mask)) {
    if (*kind != "causal") reject(function, "mask", "'" + *kind + "'", "None, 'causal' or an array");
    causal = true;
  } else if (auto mask = std::get_if<mx::array>(&options.mask)) {
    mx::Shape scores = q.shape();
    scores.back() = dims["S"];
    check_mask(function, *mask, scores);
    call.inputs.mask = *mask;
  }
  std::tie(call.params.left, call.params.right) = check_window(function, options, causal);
  if (options.scale) call.params.scale = check_scale(function, *options.scale);
  if (options.softcap) call.params.softcap = check_softcap(function, *options.softcap);
  if (options.sinks) call.inputs.sinks = check_sinks(function, dims, *options.sinks, call.stream);

  AttentionInputs known{q, k, v};
  for (auto [argument, lengths, member] :
       {std::tuple{"q_lens", &options.q_lens, &AttentionInputs::q_lens},
        std::tuple{"kv_start", &options.kv_start, &AttentionInputs::kv_start},
        std::tuple{"kv_lens", &options.kv_lens, &AttentionInputs::kv_lens}}) {
    if (!*lengths) continue;
    call.inputs.*member = check_lengths(function, dims, argument, **lengths);
    if ((*lengths)->known_at_call) known.*member = (*lengths)->values;
  }
  if (has_lengths(known)) {
    read_sequences(known, dims["L"], dims["S"],
                   [&](const char* argument, std::string got, std::string expected) {
                     reject(function, argument, got, expected);
                   });
  }

  if (options.on_fallback != "error" && options.on_fallback != "warn" && options.on_fallback != "allow") {
    reject(function, "on_fallback", "'" + options.on_fallback + "'", "'error', 'warn' or 'allow'");
  }
  call.params.kernels = &check_isa(function, options.isa);
  call.params.threads = check_threads(function, options.threads);
  for (size_t i = 0; i < kOptionalInputs.size(); i++) {
    call.params.present[i] = (call.inputs.*kOptionalInputs[i].member).has_value();
  }
  return call;
}

void announce_fallback(const AttentionOptions& options, const std::string& reason) {
  if (options.on_fallback == "error" || options.batch_invariant) {
    std::string promise = options.batch_invariant ? " that is batch invariant" : "";
    throw std::runtime_error(std::string(kFunction) + ": no fused kernel" + promise + ": " + reason);
  }
  if (options.on_fallback == "allow" || !options.warn) return;
  static std::mutex mutex;
  static std::set<std::string> told;
  {
    std::lock_guard lock(mutex);
    if (!told.insert(reason).second) return;
  }
  options.warn(std::string(kFunction) +
               ": falling back to attention_reference, with O(L * S) memory: " + reason);
}

// With the lengths of the sequences, where all of them are there to read.
Problem problem_as_known(const Call& call) {
  Problem problem = call.problem();
  bool known = has_lengths(call.inputs);
  for (const auto& lengths : {call.inputs.q_lens, call.inputs.kv_start, call.inputs.kv_lens}) {
    known = known && (!lengths || lengths->is_available());
  }
  if (known) problem.sequences = read_sequences(call.inputs, problem.L, problem.S, refuse_length);
  return problem;
}

OutputAndLse run_reference(const Call& call) {
  Problem problem = call.problem();
  record_run({"reference", problem.B * problem.Hq, problem.B * problem.Hq, 1, "", 0});
  return reference_graph(call.inputs, call.params, call.stream);
}

}  // namespace

OutputAndLse attention(const mx::array& query, const mx::array& key, const mx::array& value,
                       const AttentionOptions& options) {
  Call call = check(kFunction, query, key, value, options);
  Verdict verdict = fused_kernel(call.problem());
  if (!verdict.ok) {
    announce_fallback(options, verdict.reason);
    return run_reference(call);
  }
  mx::Shape lse_shape(query.shape().begin(), query.shape().end() - 1);
  auto outputs =
      mx::array::make_arrays({query.shape(), lse_shape}, {query.dtype(), mx::float32},
                             std::make_shared<Attention>(call.stream, call.params), pack(call.inputs));
  return {outputs[0], outputs[1]};
}

OutputAndLse attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                 const AttentionOptions& options) {
  return run_reference(check(kReference, query, key, value, options));
}

Explanation explain_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                              const AttentionOptions& options) {
  return explain(problem_as_known(check(kFunction, query, key, value, options)));
}

Explanation explain_attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                        const AttentionOptions& options) {
  return explain_reference(problem_as_known(check(kReference, query, key, value, options)),
                           "asked for by name");
}

mx::array flash_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                          const std::optional<mx::array>& mask, double scale, bool is_causal,
                          int num_kv_heads, int num_heads,
                          const std::function<void(const std::string&)>& warn, mx::StreamOrDevice stream) {
  for (auto [argument, x] :
       {std::pair{"query", &query}, std::pair{"key", &key}, std::pair{"value", &value}}) {
    if (x->dtype() != mx::float32) reject(kFunction, argument, to_text(x->dtype()), "float32");
  }
  Dims dims(kFunction);
  dims.match("query", query.shape(), {"N", "L", "E"});
  dims.match("key", key.shape(), {"N_kv", "S", "E"});
  dims.match("value", value.shape(), {"N_kv", "S", "E"});
  if (mask) {
    if (mask->dtype() != mx::float32) reject(kFunction, "mask", to_text(mask->dtype()), "float32");
    dims.match("mask", mask->shape(), {"N", "L", "S"});
  }
  check_heads(kFunction, num_heads, num_kv_heads);
  if (dims["N"] % num_heads != 0) {
    reject(kFunction, "query", std::to_string(dims["N"]) + " rows",
           "a multiple of num_heads = " + std::to_string(num_heads));
  }
  int batch = dims["N"] / num_heads;
  if (dims["N_kv"] != static_cast<int64_t>(batch) * num_kv_heads) {
    reject(
        kFunction, "key", std::to_string(dims["N_kv"]) + " rows",
        std::to_string(num_kv_heads) + " for each of the " + std::to_string(batch) + " sequences of query");
  }

  AttentionOptions options;
  options.scale = scale;
  options.causal = is_causal;
  options.warn = warn;
  options.stream = stream;
  auto split = [&](const mx::array& x, int heads) { return mx::unflatten(x, 0, {batch, heads}, stream); };
  if (mask) options.mask = split(*mask, num_heads);
  auto [o, lse] =
      attention(split(query, num_heads), split(key, num_kv_heads), split(value, num_kv_heads), options);
  return mx::flatten(o, 0, 1, stream);
}

bool Attention::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const Attention&>(other).params_;
}

std::vector<mx::Shape> Attention::output_shapes(const std::vector<mx::array>& inputs) {
  const mx::Shape& query = inputs[0].shape();
  return {query, mx::Shape(query.begin(), query.end() - 1)};
}

}  // namespace tiny_llm_ext
