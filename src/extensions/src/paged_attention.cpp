// The front door of attention over pages, and the primitive's identity. It runs the forward kernel of
// attention.
#include "attention/checks.h"
#include "attention/inputs.h"
#include "cpu/isa.h"
#include "cpu/pool.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kName = "paged_attention";

void check_dtype(const char* argument, const mx::array& x, mx::Dtype expected) {
  if (x.dtype() != expected) reject(kName, argument, to_text(x.dtype()), to_text(expected));
}

void check_pages(const mx::array& key_pages, int num_kv_heads) {
  if (key_pages.shape(1) != num_kv_heads) {
    reject(kName, "key_pages", std::to_string(key_pages.shape(1)) + " heads",
           "num_kv_heads = " + std::to_string(num_kv_heads));
  }
  if (key_pages.shape(2) < 1) reject(kName, "key_pages", "pages of 0 tokens", "at least 1");
  if (key_pages.shape(3) < 1) reject(kName, "key_pages", "E = 0", "E of at least 1");
}

[[noreturn]] void refuse(const char* transform) {
  throw NotImplemented(std::string(kName) + ": " + transform +
                       " is not supported; use flash_attention on gathered keys and values");
}

}  // namespace

mx::array paged_attention(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                          const mx::array& block_table, const mx::array& context_lens, double scale,
                          bool is_causal, int num_kv_heads, int num_heads, mx::StreamOrDevice stream) {
  check_dtype("query", query, mx::float32);
  check_dtype("key_pages", key_pages, mx::float32);
  check_dtype("value_pages", value_pages, mx::float32);
  check_dtype("block_table", block_table, mx::int32);
  check_dtype("context_lens", context_lens, mx::int32);
  Dims dims(kName);
  dims.match("query", query.shape(), {"N", "L", "E"});
  dims.match("key_pages", key_pages.shape(), {"P", "Hkv", "page", "E"});
  dims.match("value_pages", value_pages.shape(), {"P", "Hkv", "page", "E"});
  dims.match("block_table", block_table.shape(), {"B", "pages"});
  dims.match("context_lens", context_lens.shape(), {"B"});
  check_heads(kName, num_heads, num_kv_heads);
  check_pages(key_pages, num_kv_heads);
  if (dims["N"] != int64_t{dims["B"]} * num_heads) {
    reject(kName, "query", std::to_string(dims["N"]) + " rows",
           std::to_string(num_heads) + " for each of the " + std::to_string(dims["B"]) +
               " sequences of block_table");
  }

  AttentionParams params;
  params.scale = check_scale(kName, scale);
  if (is_causal) params.right = 0;
  params.kernels = &cpu::active_kernels();
  params.threads = cpu::default_threads();
  mx::Stream worker = cpu_stream(kName, stream);
  mx::array split = mx::unflatten(query, 0, {dims["B"], num_heads}, worker);
  Verdict verdict = fused_kernel(make_problem({split, key_pages, value_pages}, params, worker.device));
  if (!verdict.ok) throw std::runtime_error(std::string(kName) + ": no kernel: " + verdict.reason);
  mx::Shape lse_shape(split.shape().begin(), split.shape().end() - 1);
  auto outputs = mx::array::make_arrays({split.shape(), lse_shape}, {mx::float32, mx::float32},
                                        std::make_shared<PagedAttention>(worker, params),
                                        {split, key_pages, value_pages, block_table, context_lens});
  return mx::flatten(outputs[0], 0, 1, worker);
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

std::vector<mx::Shape> PagedAttention::output_shapes(const std::vector<mx::array>& inputs) {
  const mx::Shape& query = inputs[0].shape();
  return {query, mx::Shape(query.begin(), query.end() - 1)};
}

void PagedAttention::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) { refuse_gpu(kName); }

}  // namespace tiny_llm_ext
