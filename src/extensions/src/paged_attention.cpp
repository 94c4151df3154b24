// The front door of attention over pages, and the primitive's identity. It runs the forward kernel of
// attention.
#include "attention/checks.h"
#include "attention/inputs.h"
#include "cpu/isa.h"
#include "cpu/pool.h"
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

// Throws unless the inputs fit together and have a kernel.
void check(const std::vector<mx::array>& inputs, const PagedParams& params) {
  constexpr const char* kArguments[] = {"query", "key_pages", "value_pages", "block_table", "context_lens"};
  const std::initializer_list<std::string_view> shapes[] = {
      {"N", "L", "E"}, {"P", "Hkv", "page", "E"}, {"P", "Hkv", "page", "E"}, {"B", "pages"}, {"B"}};
  for (size_t i = 0; i < inputs.size(); i++)
    check_dtype(kArguments[i], inputs[i], i < 3 ? mx::float32 : mx::int32);
  Dims dims(kPagedAttention);
  for (size_t i = 0; i < inputs.size(); i++) dims.match(kArguments[i], inputs[i].shape(), shapes[i]);
  check_heads(kPagedAttention, params.num_heads, params.num_kv_heads);
  check_pages(inputs[1], params.num_kv_heads);
  if (dims["N"] != int64_t{dims["B"]} * params.num_heads) {
    reject(kPagedAttention, "query", std::to_string(dims["N"]) + " rows",
           std::to_string(params.num_heads) + " for each of the " + std::to_string(dims["B"]) +
               " sequences of block_table");
  }
  const mx::array heads({dims["B"], params.num_heads, dims["L"], dims["E"]}, mx::float32, nullptr, {});
  const Verdict verdict = fused_kernel(make_problem({heads, inputs[1], inputs[2]}, params, mx::Device::cpu));
  if (!verdict.ok) throw std::runtime_error(std::string(kPagedAttention) + ": no kernel: " + verdict.reason);
}

std::vector<mx::Shape> result_shapes(const mx::array& query) {
  return {query.shape(), {query.shape(0), query.shape(1)}};
}

[[noreturn]] void refuse(const char* transform) {
  throw NotImplemented(std::string(kPagedAttention) + ": " + transform +
                       " is not supported; use flash_attention on gathered keys and values");
}

}  // namespace

mx::array paged_attention(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                          const mx::array& block_table, const mx::array& context_lens, double scale,
                          bool is_causal, int num_kv_heads, int num_heads, mx::StreamOrDevice stream) {
  PagedParams params = {{}, num_heads, num_kv_heads};
  params.scale = check_scale(kPagedAttention, scale);
  if (is_causal) params.right = 0;
  params.kernels = &cpu::active_kernels();
  params.threads = cpu::default_threads();
  const std::vector<mx::array> inputs = {query, key_pages, value_pages, block_table, context_lens};
  check(inputs, params);
  if (context_lens.is_available()) read_contexts(inputs, refusal_by(kName));
  return mx::array::make_arrays(result_shapes(query), {mx::float32, mx::float32},
                                std::make_shared<PagedAttention>(cpu_stream(kPagedAttention, stream), params),
                                inputs)[0];
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

// A shapeless compiled graph asks again for every new set of shapes.
std::vector<mx::Shape> PagedAttention::output_shapes(const std::vector<mx::array>& inputs) {
  check(inputs, params_);
  return result_shapes(inputs[0]);
}

void PagedAttention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu(kPagedAttention);
}

}  // namespace tiny_llm_ext
