// Attention over pages: checks the arguments and builds the primitive, which runs the forward kernel of
// attention, or the reference graph on gathered pages where there is no kernel.
#include "attention/arguments/fallback.h"
#include "attention/arguments/options.h"
#include "attention/gathered_pages.h"
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "attention/lengths.h"
#include "attention/support.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/saturating.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

void check_dtype(const char* argument, const mx::array& x, mx::Dtype expected) {
  if (x.dtype() != expected) reject(kPagedFunction, argument, to_text(x.dtype()), to_text(expected));
}

constexpr const char* kPagedArguments[] = {"query", "key_pages", "value_pages", "block_table",
                                           "context_lens"};

// Throws for pages, table and contexts that do not match each other and the query, whose shape `dims` knows.
void check_pages(const std::vector<mx::array>& inputs, Dims& dims) {
  check_floating(kPagedFunction, kPagedArguments[0], inputs[0]);
  for (size_t i = 1; i < 3; i++) check_dtype(kPagedArguments[i], inputs[i], inputs[0].dtype());
  for (size_t i = 3; i < 5; i++) {
    if (!mx::issubdtype(inputs[i].dtype(), mx::integer))
      reject(kPagedFunction, kPagedArguments[i], to_text(inputs[i].dtype()), "an integer type");
  }
  dims.match("key_pages", inputs[1].shape(), {"P", "Hkv", "page", "E"});
  dims.match("value_pages", inputs[2].shape(), {"P", "Hkv", "page", "E"});
  dims.match("block_table", inputs[3].shape(), {"B", "pages"});
  dims.match("context_lens", inputs[4].shape(), {"B"});
  if (dims["page"] < 1) reject(kPagedFunction, "key_pages", "pages of 0 tokens", "at least 1");
  if (dims["E"] < 1) reject(kPagedFunction, "key_pages", "E = 0", "E of at least 1");
}

// The same for a flat query (B * num_heads, L, E).
void check_flat(const std::vector<mx::array>& inputs, int num_heads, int num_kv_heads) {
  Dims dims(kPagedFunction);
  dims.match("query", inputs[0].shape(), {"N", "L", "E"});
  check_pages(inputs, dims);
  check_heads(kPagedFunction, num_heads, num_kv_heads);
  if (dims["Hkv"] != num_kv_heads) {
    reject(kPagedFunction, "key_pages", std::to_string(dims["Hkv"]) + " heads",
           "num_kv_heads = " + std::to_string(num_kv_heads));
  }
  if (dims["N"] != int64_t{dims["B"]} * num_heads) {
    reject(kPagedFunction, "query", std::to_string(dims["N"]) + " rows",
           std::to_string(num_heads) + " for each of the " + std::to_string(dims["B"]) +
               " sequences of block_table");
  }
}

// The same for a query (B, Hq, L, E) or packed (Hq, T_q, E), with its optional inputs. mx.vmap adds batch
// axes.
void check_by_heads(const PagedInputs& inputs, const std::vector<mx::array>& arrays) {
  const AttentionInputs& call = inputs.attention;
  const bool mapped = call.query.ndim() > (call.packed() ? 3 : 4);
  Dims dims(kPagedFunction);
  if (mapped) {
    dims.match("query", call.query.shape(), {"entries...", "Hq", "L", "E"});
  } else if (call.packed()) {
    dims.match("query", call.query.shape(), {"Hq", "T_q", "E"});
  } else {
    dims.match("query", call.query.shape(), {"B", "Hq", "L", "E"});
  }
  check_pages(arrays, dims);
  if (dims["Hq"] < 1 || dims["Hkv"] < 1 || dims["Hq"] % dims["Hkv"] != 0) {
    reject(kPagedFunction, "query", std::to_string(dims["Hq"]) + " heads",
           "a multiple of the " + std::to_string(dims["Hkv"]) + " heads of key_pages");
  }
  if (call.sinks && !mapped) dims.match("sinks", call.sinks->shape(), {"Hq"});
  if (has_lengths(call)) check_lengths_arrays(kPagedFunction, call, mapped);
  const int64_t entries = saturating_product(batch_shape(call));
  const int64_t per_entry = call.packed() ? call.cu_seqlens_q->shape(-1) - 1 : 1;
  if (mapped && entries * per_entry != dims["B"]) {
    reject(kPagedFunction, "block_table", to_text(inputs.block_table.shape()),
           std::to_string(entries * per_entry) + " rows, one for each sequence");
  }
  if (call.packed() && !mapped && per_entry != dims["B"]) {
    reject(kPagedFunction, "cu_seqlens_q", to_text(call.cu_seqlens_q->shape()),
           "(" + std::to_string(dims["B"] + 1) + ",), one more than the sequences of block_table");
  }
}

// The heads of a flat query as an axis; only a shape.
mx::array unflattened(const mx::array& query, int num_heads) {
  return mx::array({query.shape(0) / num_heads, num_heads, query.shape(1), query.shape(2)}, query.dtype(),
                   nullptr, {});
}

Problem problem_of(const PagedInputs& inputs, const PagedParams& params, mx::Device device) {
  AttentionInputs call = inputs.attention;
  if (params.num_heads > 0) call.query = unflattened(call.query, params.num_heads);
  Problem problem = make_problem(call, params, device);
  problem.S = inputs.slots_per_sequence();
  problem.paged = true;
  return problem;
}

// Keys and values of all sequences in one array, if the queries are packed.
Problem gathered_problem(const PagedInputs& inputs, const PagedParams& params, mx::Device device) {
  Problem problem = problem_of(inputs, params, device);
  if (inputs.attention.packed())
    problem.S = saturating_product({problem.S, int64_t{inputs.block_table.shape(0)}});
  return problem;
}

// Throws for inputs that do not match.
void check_inputs(const PagedInputs& inputs, const std::vector<mx::array>& arrays,
                  const PagedParams& params) {
  if (params.num_heads > 0) {
    check_flat(arrays, params.num_heads, arrays[1].shape(1));
  } else {
    check_by_heads(inputs, arrays);
  }
}

// Throws for inputs that do not match or have no kernel.
void check_for_kernel(const std::vector<mx::array>& arrays, const PagedParams& params) {
  const PagedInputs inputs(arrays, params);
  check_inputs(inputs, arrays, params);
  const Verdict verdict = fused_kernel(problem_of(inputs, params, mx::Device::cpu));
  if (!verdict.ok) {
    throw NotImplemented(
        std::string(kPagedFunction) + ": no fused kernel: " + verdict.reason +
        "; tiny_llm.paged_attention runs attention_reference, but not in a shapeless compiled graph");
  }
}

std::vector<mx::Shape> result_shapes(const mx::array& query) {
  return {query.shape(), mx::Shape(query.shape().begin(), query.shape().end() - 1)};
}

bool are_numbers_known(const PagedInputs& inputs, const PagedParams& params) {
  return inputs.context_lens.is_available() && are_available(inputs.attention) &&
         (params.hide_absent || params.ids_checked || inputs.block_table.is_available());
}

// Throws for wrong numbers, if all are known.
std::vector<Sequence> check_numbers(const PagedInputs& inputs, const PagedParams& params) {
  if (!are_numbers_known(inputs, params)) return {};
  return read_paged_sequences(inputs, params, throws_argument_error(kPagedFunction));
}

// Of inputs that were checked.
OutputAndLse attend(const std::vector<mx::array>& arrays, const PagedParams& params, mx::Stream stream) {
  const auto outputs = mx::array::make_arrays(result_shapes(arrays[0]), {arrays[0].dtype(), mx::float32},
                                              std::make_shared<PagedAttention>(stream, params), arrays);
  return {outputs[0], outputs[1]};
}

// The inputs of the primitive and its parameters, for a call of `attention_in_pages`.
struct PagedCall {
  std::vector<mx::array> arrays;
  PagedParams params;
  mx::Stream stream;

  PagedInputs inputs() const { return PagedInputs(arrays, params); }
};

Verdict kernel_for(const PagedCall& call, const PagedOptions& options) {
  if (call.stream.device != mx::Device::cpu) return {false, "pages have kernels for the CPU only"};
  if (!options.own_kernels) return {false, kExcluded};
  return fused_kernel(problem_of(call.inputs(), call.params, mx::Device::cpu));
}

PagedCall arrange(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                  const mx::array& block_table, const mx::array& context_lens, const PagedOptions& options) {
  const mx::Stream stream = mx::to_stream(options.stream);
  if (std::holds_alternative<mx::array>(options.mask)) {
    throw NotImplemented(std::string(kPagedFunction) +
                         ": mask: got an array, expected None or 'causal'; flash_attention takes masks");
  }
  // In the caller's layout, for the text of errors.
  Dims dims(kPagedFunction);
  const bool packed = options.cu_seqlens_q.has_value();
  if (packed) {
    dims.match("query", query.shape(), {"T_q", "Hq", "E"});
  } else {
    dims.match("query", query.shape(), {"B", "Hq", "L", "E"});
  }
  const bool slots_outside = options.layout == PageLayout::slots_outside;
  for (auto [argument, pages] :
       {std::pair{"key_pages", &key_pages}, std::pair{"value_pages", &value_pages}}) {
    if (slots_outside) {
      dims.match(argument, pages->shape(), {"P", "page", "Hkv", "E"});
    } else {
      dims.match(argument, pages->shape(), {"P", "Hkv", "page", "E"});
    }
  }
  const auto by_heads = [&](const mx::array& x, bool turned, int axis) {
    return turned ? mx::swapaxes(x, axis, axis + 1, stream) : x;
  };
  AttentionInputs inputs(by_heads(query, packed, 0), by_heads(key_pages, slots_outside, 1),
                         by_heads(value_pages, slots_outside, 1));
  if (options.sinks) {
    check_floating(kPagedFunction, "sinks", *options.sinks);
    inputs.sinks = mx::astype(*options.sinks, mx::float32, stream);
  }
  inputs.q_lens = options.q_lens;
  inputs.cu_seqlens_q = options.cu_seqlens_q;
  PagedParams params;
  static_cast<AttentionParams&>(params) =
      check_options(kPagedFunction, options, is_causal(kPagedFunction, options));
  params.hide_absent = options.hide_absent;
  params.ids_checked = options.ids_checked;
  if (params.ids_checked) params.checked_pages = key_pages.shape(0);
  for (size_t i = 0; i < kOptionalInputs.size(); i++)
    params.present[i] = (inputs.*kOptionalInputs[i].member).has_value();
  std::vector<mx::array> arrays = pack(inputs);
  arrays.insert(arrays.begin() + 3, {block_table, context_lens});
  return {arrays, params, stream};
}

// The bytes of a gradient whose keys and values are pages.
void explain_paged_gradient(const Problem& problem, const PagedInputs& inputs, Explanation& e) {
  const AttentionInputs& call = inputs.attention;
  const int64_t output = bytes_of(call.query.shape(), call.query.dtype());
  e.saved_bytes = saturating_sum(
      saturating_sum(2 * output, output / (problem.E * problem.element_bytes()) * sizeof(float)),
      bytes_of(call.key.shape(), call.key.dtype()) + bytes_of(call.value.shape(), call.value.dtype()));
  // dK and dV of each token, before those of a page are summed.
  int64_t tokens = 0;
  for (const Sequence& sequence : problem.sequences) tokens += sequence.n_k;
  if (problem.sequences.empty())
    tokens = saturating_product({inputs.block_table.shape(0), inputs.slots_per_sequence()});
  e.workspace_bytes_backward = saturating_sum(
      e.workspace_bytes_backward, saturating_product({2, problem.Hkv, tokens, problem.E, sizeof(float)}));
}

}  // namespace

mx::array paged_attention(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                          const mx::array& block_table, const mx::array& context_lens, double scale,
                          bool is_causal, int num_kv_heads, int num_heads, mx::StreamOrDevice stream) {
  const std::vector<mx::array> inputs = {query, key_pages, value_pages, block_table, context_lens};
  for (int i = 0; i < 5; i++) check_dtype(kPagedArguments[i], inputs[i], i < 3 ? mx::float32 : mx::int32);
  check_flat(inputs, num_heads, num_kv_heads);
  PagedParams params;
  params.num_heads = num_heads;
  params.hide_absent = true;
  params.scale = check_scale(kPagedFunction, scale);
  if (is_causal) params.right = 0;
  params.kernels = &cpu::active_kernels();
  params.threads = cpu::active_threads();
  check_for_kernel(inputs, params);
  check_numbers(PagedInputs(inputs, params), params);
  return attend(inputs, params, cpu_stream(kPagedFunction, stream)).first;
}

OutputAndOptionalLse attention_in_pages(const mx::array& query, const mx::array& key_pages,
                                        const mx::array& value_pages, const mx::array& block_table,
                                        const mx::array& context_lens, const PagedOptions& options) {
  const PagedCall call = arrange(query, key_pages, value_pages, block_table, context_lens, options);
  const PagedInputs inputs = call.inputs();
  check_inputs(inputs, call.arrays, call.params);
  check_numbers(inputs, call.params);
  const auto compute = [&]() -> OutputAndLse {
    const Verdict kernel = kernel_for(call, options);
    if (kernel.ok) return attend(call.arrays, call.params, call.stream);
    report_fallback(kPagedFunction, options, {kernel.reason});
    record_run(graph_run(kReferencePath, gathered_problem(inputs, call.params, call.stream.device)));
    return reference_graph(kPagedFunction, gather_pages(inputs, call.params, call.stream), call.params,
                           call.stream);
  };
  auto [o, lse] = compute();
  if (inputs.attention.packed()) {
    o = mx::swapaxes(o, 0, 1, call.stream);
    lse = mx::swapaxes(lse, 0, 1, call.stream);
  }
  return {o, options.return_lse ? std::optional(lse) : std::nullopt};
}

Explanation explain_attention_in_pages(const mx::array& query, const mx::array& key_pages,
                                       const mx::array& value_pages, const mx::array& block_table,
                                       const mx::array& context_lens, const PagedOptions& options) {
  const PagedCall call = arrange(query, key_pages, value_pages, block_table, context_lens, options);
  const PagedInputs inputs = call.inputs();
  check_inputs(inputs, call.arrays, call.params);
  const std::vector<Sequence> sequences = check_numbers(inputs, call.params);
  const Verdict kernel = kernel_for(call, options);
  if (kernel.ok) {
    Problem problem = problem_of(inputs, call.params, call.stream.device);
    problem.sequences = sequences;
    Explanation e = explain(problem);
    explain_paged_gradient(problem, inputs, e);
    return e;
  }
  const Problem problem = gathered_problem(inputs, call.params, call.stream.device);
  Explanation e = explain_reference(problem, {kernel.reason});
  explain_batch_invariance(options, e);
  // The gathered pages, and a second copy with unused slots cleared.
  e.copies_bytes = saturating_product(
      {2, problem.B, problem.Hkv, problem.S, problem.E + problem.V, problem.element_bytes()});
  e.workspace_bytes = saturating_sum(e.workspace_bytes, e.copies_bytes);
  return e;
}

bool PagedAttention::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const PagedAttention&>(other).params_;
}

// A shapeless compiled graph calls this for each new set of shapes.
std::vector<mx::Shape> PagedAttention::output_shapes(const std::vector<mx::array>& inputs) {
  check_for_kernel(inputs, params_);
  return result_shapes(inputs[0]);
}

void PagedAttention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu(kPagedFunction);
}

}  // namespace tiny_llm_ext
