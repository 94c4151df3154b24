// Attention: checks the arguments, routes to the fused primitive, MLX's operation or the reference graph. The
// gradient and vmap are in attention/transforms/transforms.cpp.
#include "attention/arguments/fallback.h"
#include "attention/arguments/options.h"
#include "attention/arguments/shapes.h"
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "attention/lengths.h"
#include "attention/mlx_fast.h"
#include "attention/support.h"
#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kReference = "attention_reference";

void check_dtypes(const char* function, const AttentionInputs& inputs) {
  check_floating(function, "query", inputs.query);
  for (auto [argument, x] : {std::pair{"key", &inputs.key}, std::pair{"value", &inputs.value}}) {
    if (x->dtype() != inputs.query.dtype()) {
      reject(function, argument, to_text(x->dtype()), to_text(inputs.query.dtype()) + ", the dtype of query");
    }
  }
  if (inputs.mask && inputs.mask->dtype() != mx::bool_ && inputs.mask->dtype() != mx::float32 &&
      inputs.mask->dtype() != mx::float16 && inputs.mask->dtype() != mx::bfloat16) {
    reject(function, "mask", to_text(inputs.mask->dtype()),
           "bool (True: attend), float32, float16 or bfloat16");
  }
  if (inputs.sinks) check_floating(function, "sinks", *inputs.sinks);
}

// Checks lengths: shapes, types, and the values of those that are evaluated.
void check_lengths(const char* function, Dims& dims, const AttentionInputs& inputs) {
  check_lengths_arrays(function, inputs);
  SequenceLengths known;
  for (const LengthsArgument& argument : kLengthsArguments) {
    const auto& lengths = inputs.*argument.member;
    if (lengths && lengths->is_available()) known.*argument.member = lengths;
  }
  // Packed sequences say nothing unless all is known.
  if (inputs.packed() && !are_available(inputs)) return;
  read_sequences(known, batch_shape(inputs), dims["L"], dims["S"], throws_argument_error(function));
}

// Packed rows (T, H, E) as one entry (H, T, E).
AttentionInputs arrange_packed(const char* function, const AttentionInputs& given,
                               const AttentionOptions& options, mx::Stream stream) {
  Dims dims(function);
  dims.match("query", given.query.shape(), {"T_q", "Hq", "E"});
  dims.match("key", given.key.shape(), {"T_k", "Hkv", "E"});
  dims.match("value", given.value.shape(), {"T_k", "Hkv", "V"});
  if (std::holds_alternative<mx::array>(options.mask)) {
    throw NotImplemented(std::string(function) +
                         ": mask: packed sequences have no mask array; use causal and window, or "
                         "flash_attention on a batch");
  }
  const auto heads_first = [&](const mx::array& x) { return mx::swapaxes(x, 0, 1, stream); };
  AttentionInputs inputs{heads_first(given.query), heads_first(given.key), heads_first(given.value)};
  static_cast<SequenceLengths&>(inputs) = given;
  if (!inputs.cu_seqlens_k) inputs.cu_seqlens_k = inputs.cu_seqlens_q;
  return inputs;
}

// A call with valid arguments.
struct Call {
  AttentionInputs inputs;
  AttentionParams params;
  mx::Stream stream;

  Problem problem() const { return make_problem(inputs, params, stream.device); }
};

Call check_attention(const char* function, const mx::array& q, const mx::array& k, const mx::array& v,
                     const AttentionOptions& options) {
  Call call{{q, k, v}, {}, mx::to_stream(options.stream)};
  static_cast<SequenceLengths&>(call.inputs) = options;
  if (options.cu_seqlens_q) call.inputs = arrange_packed(function, call.inputs, options, call.stream);
  call.inputs.sinks = options.sinks;
  const bool causal = is_causal(function, options);
  if (auto mask = std::get_if<mx::array>(&options.mask)) call.inputs.mask = *mask;
  Dims dims = check_shapes(function, call.inputs);
  check_dtypes(function, call.inputs);
  if (auto& sinks = call.inputs.sinks) {
    dims.match("sinks", sinks->shape(), {"Hq"});
    sinks = mx::astype(*sinks, mx::float32, call.stream);
  }
  if (has_lengths(call.inputs)) check_lengths(function, dims, call.inputs);

  call.params = check_options(function, options, causal);
  for (size_t i = 0; i < kOptionalInputs.size(); i++) {
    call.params.present[i] = (call.inputs.*kOptionalInputs[i].member).has_value();
  }
  return call;
}

enum class Path { fused, mlx, reference };

struct Route {
  Path path;
  std::vector<std::string> reasons;  // why not our kernels, and why not MLX's operation
};

Route choose_route(const Call& call, const Problem& problem, const AttentionOptions& options) {
  const Verdict ours = options.own_kernels ? fused_kernel(problem) : Verdict{false, kExcluded};
  if (ours.ok) return {Path::fused, {}};
  const bool mlx_may_have_kernels = problem.backend == Backend::gpu || !options.own_kernels;
  if (!mlx_may_have_kernels || options.batch_invariant) return {Path::reference, {ours.reason}};
  const Verdict mlx = mlx_computes(call.inputs, call.params, options.return_lse);
  if (mlx.ok) return {Path::mlx, {ours.reason}};
  return {Path::reference, {ours.reason, mlx.reason}};
}

// With the lengths of the sequences if all are evaluated.
Problem problem_with_lengths(const char* function, const Call& call) {
  Problem problem = call.problem();
  if (has_lengths(call.inputs) && are_available(call.inputs)) {
    problem.sequences = read_sequences(call.inputs, batch_shape(call.inputs), problem.L, problem.S,
                                       throws_argument_error(function));
  }
  return problem;
}

// The results in the layout of the call's arrays.
OutputAndOptionalLse select_outputs(const OutputAndLse& results, const Call& call,
                                    const AttentionOptions& options) {
  auto [o, lse] = results;
  if (call.inputs.packed()) {
    o = mx::swapaxes(o, 0, 1, call.stream);
    lse = mx::swapaxes(lse, 0, 1, call.stream);
  }
  return {o, options.return_lse ? std::optional(lse) : std::nullopt};
}

OutputAndOptionalLse run_reference(const char* function, const Call& call, const AttentionOptions& options) {
  record_run(graph_run(kReferencePath, call.problem()));
  return select_outputs(reference_graph(function, call.inputs, call.params, call.stream), call, options);
}

// The arguments of `attention` for a call of the flat form.
struct Unflattened {
  mx::array query, key, value;
  AttentionOptions options;
};

Unflattened unflatten(const mx::array& query, const mx::array& key, const mx::array& value,
                      const std::optional<mx::array>& mask, double scale, bool is_causal, int num_kv_heads,
                      int num_heads, mx::StreamOrDevice stream) {
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
  options.stream = stream;
  options.readable = true;
  options.return_lse = false;
  auto split = [&](const mx::array& x, int heads) { return mx::unflatten(x, 0, {batch, heads}, stream); };
  if (mask) options.mask = split(*mask, num_heads);
  return {split(query, num_heads), split(key, num_kv_heads), split(value, num_kv_heads), options};
}

// `split`, which is not evaluated, with the layout that it will have as a view of `whole`: explain() reads
// it.
mx::array with_layout_of(const mx::array& split, const mx::array& whole) {
  if (!whole.is_available()) return split;
  mx::array known(split.shape(), split.dtype(), nullptr, {});
  mx::Strides strides = whole.strides();
  strides.insert(strides.begin(), strides[0] * split.shape(1));
  known.copy_shared_buffer(whole, strides, whole.flags(), whole.data_size());
  known.set_status(mx::array::Status::available);
  return known;
}

}  // namespace

OutputAndOptionalLse attention(const mx::array& query, const mx::array& key, const mx::array& value,
                               const AttentionOptions& options) {
  const char* function = options.cu_seqlens_q ? kPackedFunction : kFunction;
  Call call = check_attention(function, query, key, value, options);
  const Problem problem = call.problem();
  const Route route = choose_route(call, problem, options);
  if (route.path == Path::mlx) {
    record_run(graph_run(kMlxPath, problem));
    call.inputs.sinks = options.sinks;  // without the cast to float32
    return {mlx_graph(call.inputs, call.params, call.stream), std::nullopt};
  }
  if (route.path == Path::reference) {
    report_fallback(function, options, route.reasons);
    return run_reference(function, call, options);
  }
  const mx::Shape& shape = call.inputs.query.shape();
  auto outputs =
      mx::array::make_arrays({shape, {shape.begin(), shape.end() - 1}}, {query.dtype(), mx::float32},
                             std::make_shared<Attention>(call.stream, call.params), pack(call.inputs));
  return select_outputs({outputs[0], outputs[1]}, call, options);
}

OutputAndOptionalLse attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                         const AttentionOptions& options) {
  Call call = check_attention(kReference, query, key, value, options);
  if (options.batch_invariant) {
    reject(kReference, "batch_invariant", "True", "False; only the fused kernels keep that promise");
  }
  return run_reference(kReference, call, options);
}

Explanation explain_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                              const AttentionOptions& options) {
  const char* function = options.cu_seqlens_q ? kPackedFunction : kFunction;
  Call call = check_attention(function, query, key, value, options);
  const Problem problem = problem_with_lengths(function, call);
  const Route route = choose_route(call, problem, options);
  if (route.path == Path::fused) return explain(problem);
  if (route.path == Path::mlx) return explain_mlx(problem, route.reasons);
  Explanation explanation = explain_reference(problem, route.reasons);
  explain_batch_invariance(options, explanation);
  return explanation;
}

Explanation explain_attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                        const AttentionOptions& options) {
  Call call = check_attention(kReference, query, key, value, options);
  Explanation explanation = explain_reference(problem_with_lengths(kReference, call), {"requested by name"});
  explain_batch_invariance(options, explanation);
  return explanation;
}

mx::array flash_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                          const std::optional<mx::array>& mask, double scale, bool is_causal,
                          int num_kv_heads, int num_heads,
                          const std::function<void(const std::string&)>& warn, mx::StreamOrDevice stream) {
  Unflattened call = unflatten(query, key, value, mask, scale, is_causal, num_kv_heads, num_heads, stream);
  call.options.warn = warn;
  return mx::flatten(attention(call.query, call.key, call.value, call.options).first, 0, 1, stream);
}

Explanation explain_flash_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                                    const std::optional<mx::array>& mask, double scale, bool is_causal,
                                    int num_kv_heads, int num_heads, mx::StreamOrDevice stream) {
  Unflattened call = unflatten(query, key, value, mask, scale, is_causal, num_kv_heads, num_heads, stream);
  if (mask) call.options.mask = with_layout_of(std::get<mx::array>(call.options.mask), *mask);
  return explain_attention(with_layout_of(call.query, query), with_layout_of(call.key, key),
                           with_layout_of(call.value, value), call.options);
}

bool Attention::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const Attention&>(other).params_;
}

void Attention::check_inputs(const std::vector<mx::array>& arrays) {
  AttentionInputs inputs = unpack(arrays, params_);
  check_shapes(function_of(inputs), inputs);
  if (inputs.packed()) check_lengths_arrays(function_of(inputs), inputs, inputs.query.ndim() > 3);
  Verdict verdict = fused_kernel(make_problem(inputs, params_, stream().device));
  if (!verdict.ok) {
    throw NotImplemented(std::string(function_of(inputs)) + ": no fused kernel: " + verdict.reason +
                         "; compiled without shapeless=True, attention_reference runs");
  }
}

// A shapeless compiled graph calls this for each new set of shapes.
std::vector<mx::Shape> Attention::output_shapes(const std::vector<mx::array>& inputs) {
  check_inputs(inputs);
  const mx::Shape& query = inputs[0].shape();
  return {query, mx::Shape(query.begin(), query.end() - 1)};
}

}  // namespace tiny_llm_ext
