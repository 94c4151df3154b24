// Attention over pages: checks the arguments and builds the primitive, which runs the forward kernel of
// attention.
#include "attention/inputs.h"
#include "attention/lengths.h"
#include "attention/support.h"
#include "core/checks.h"
#include "core/saturating.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kPagedAttention = "paged_attention";

void check_dtype(const char* argument, const mx::array& x, mx::Dtype expected) {
  if (x.dtype() != expected) reject(kPagedAttention, argument, to_text(x.dtype()), to_text(expected));
}

void check_pages(const mx::array& key_pages, int num_kv_heads) {
  if (key_pages.shape(1) != num_kv_heads) {
    reject(kPagedAttention, "key_pages", std::to_string(key_pages.shape(1)) + " heads",
           "num_kv_heads = " + std::to_string(num_kv_heads));
  }
  if (key_pages.shape(2) < 1) reject(kPagedAttention, "key_pages", "pages of 0 tokens", "at least 1");
  if (key_pages.shape(3) < 1) reject(kPagedAttention, "key_pages", "E = 0", "E of at least 1");
}

constexpr const char* kPagedArguments[] = {"query", "key_pages", "value_pages", "block_table",
                                           "context_lens"};

// Throws for inputs that do not match.
void check_pages_and_query(const std::vector<mx::array>& inputs, const PagedParams& params) {
  const std::initializer_list<std::string_view> shapes[] = {
      {"N", "L", "E"}, {"P", "Hkv", "page", "E"}, {"P", "Hkv", "page", "E"}, {"B", "pages"}, {"B"}};
  check_floating(kPagedAttention, kPagedArguments[0], inputs[0]);
  for (size_t i = 1; i < inputs.size(); i++)
    check_dtype(kPagedArguments[i], inputs[i], i < 3 ? inputs[0].dtype() : mx::int32);
  Dims dims(kPagedAttention);
  for (size_t i = 0; i < inputs.size(); i++) dims.match(kPagedArguments[i], inputs[i].shape(), shapes[i]);
  check_heads(kPagedAttention, params.num_heads, params.num_kv_heads);
  check_pages(PagedInputs(inputs).key_pages, params.num_kv_heads);
  if (dims["N"] != int64_t{dims["B"]} * params.num_heads) {
    reject(kPagedAttention, "query", std::to_string(dims["N"]) + " rows",
           std::to_string(params.num_heads) + " for each of the " + std::to_string(dims["B"]) +
               " sequences of block_table");
  }
}

// Throws also for inputs without a kernel.
void check_for_kernel(const std::vector<mx::array>& inputs, const PagedParams& params) {
  check_pages_and_query(inputs, params);
  const PagedInputs call(inputs);
  const mx::array& query = call.query;
  const mx::array heads({call.block_table.shape(0), params.num_heads, query.shape(1), query.shape(2)},
                        query.dtype(), nullptr, {});
  const Verdict verdict =
      fused_kernel(make_problem({heads, call.key_pages, call.value_pages}, params, mx::Device::cpu));
  if (!verdict.ok) throw std::runtime_error(std::string(kPagedAttention) + ": no kernel: " + verdict.reason);
}

PagedParams make_params(double scale, bool is_causal, int num_kv_heads, int num_heads) {
  PagedParams params = {{}, num_heads, num_kv_heads};
  params.scale = check_scale(kPagedAttention, scale);
  if (is_causal) params.right = 0;
  params.kernels = &cpu::active_kernels();
  params.threads = cpu::default_threads();
  return params;
}

// For the query (B, Hq, L, E) of `attention_in_pages`.
PagedParams params_of(const mx::array& query, const mx::array& key_pages, double scale, bool is_causal) {
  Dims dims(kPagedAttention);
  dims.match("query", query.shape(), {"B", "Hq", "L", "E"});
  dims.match("key_pages", key_pages.shape(), {"P", "Hkv", "page", "E"});
  return make_params(scale, is_causal, dims["Hkv"], dims["Hq"]);
}

std::vector<mx::Shape> result_shapes(const mx::array& query) {
  return {query.shape(), {query.shape(0), query.shape(1)}};
}

mx::array attend(const std::vector<mx::array>& inputs, const PagedParams& params, mx::StreamOrDevice stream) {
  check_for_kernel(inputs, params);
  const PagedInputs call(inputs);
  if (call.context_lens.is_available()) read_context_lens(call, throws_argument_error(kPagedAttention));
  return mx::array::make_arrays(result_shapes(inputs[0]), {inputs[0].dtype(), mx::float32},
                                std::make_shared<PagedAttention>(cpu_stream(kPagedAttention, stream), params),
                                inputs)[0];
}

[[noreturn]] void refuse(const char* transform) {
  throw NotImplemented(std::string(kPagedAttention) + ": " + transform +
                       " is not supported; use flash_attention on gathered keys and values");
}

}  // namespace

mx::array paged_attention(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                          const mx::array& block_table, const mx::array& context_lens, double scale,
                          bool is_causal, int num_kv_heads, int num_heads, mx::StreamOrDevice stream) {
  const std::vector<mx::array> inputs = {query, key_pages, value_pages, block_table, context_lens};
  for (int i = 0; i < 3; i++) check_dtype(kPagedArguments[i], inputs[i], mx::float32);
  return attend(inputs, make_params(scale, is_causal, num_kv_heads, num_heads), stream);
}

mx::array attention_in_pages(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                             const mx::array& block_table, const mx::array& context_lens, double scale,
                             bool is_causal, mx::StreamOrDevice stream) {
  const PagedParams params = params_of(query, key_pages, scale, is_causal);
  const mx::array flat = mx::flatten(query, 0, 1, stream);
  const mx::array out = attend({flat, key_pages, value_pages, block_table, context_lens}, params, stream);
  return mx::unflatten(out, 0, {query.shape(0), params.num_heads}, stream);
}

// On a GPU, attention runs on a gathered copy of the pages, in MLX operations.
Explanation explain_attention_in_pages(const mx::array& query, const mx::array& key_pages,
                                       const mx::array& value_pages, const mx::array& block_table,
                                       const mx::array& context_lens, double scale, bool is_causal,
                                       mx::StreamOrDevice stream) {
  const PagedParams params = params_of(query, key_pages, scale, is_causal);
  const mx::Device device = mx::to_stream(stream).device;
  const std::vector<mx::array> inputs = {mx::flatten(query, 0, 1, stream), key_pages, value_pages,
                                         block_table, context_lens};
  const bool gathered = device != mx::Device::cpu;
  (gathered ? check_pages_and_query : check_for_kernel)(inputs, params);
  Problem problem = make_problem({query, key_pages, value_pages}, params, device);
  const PagedInputs call(inputs);
  problem.S = call.slots_per_sequence();
  if (context_lens.is_available())
    problem.sequences = read_context_lens(call, throws_argument_error(kPagedAttention));
  Explanation e =
      gathered ? explain_reference(problem, {"pages have kernels for the CPU only"}) : explain(problem);
  if (gathered) {
    // The gathered pages, and a second copy with unused slots cleared.
    e.copies_bytes = saturating_product(
        {2, problem.B, problem.Hkv, problem.S, problem.E + problem.V, problem.element_bytes()});
    e.workspace_bytes = saturating_sum(e.workspace_bytes, e.copies_bytes);
  } else {
    e.backward_path = "none";
    e.saved_bytes = e.workspace_bytes_backward = 0;
  }
  return e;
}

std::vector<mx::array> PagedAttention::vjp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                           const std::vector<int>&, const std::vector<mx::array>&) {
  refuse("the gradient");
}

std::vector<mx::array> PagedAttention::jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                           const std::vector<int>&) {
  refuse("jvp");
}

std::pair<std::vector<mx::array>, std::vector<int>> PagedAttention::vmap(const std::vector<mx::array>&,
                                                                         const std::vector<int>&) {
  refuse("vmap");
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
  refuse_gpu(kPagedAttention);
}

}  // namespace tiny_llm_ext
