// The public C++ interface of the extension and its primitive: the first file to open.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attention/explain.h"
#include "attention/problem.h"
#include "core/mask.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

// The operations that errors of the fused path name: for a rectangle, for packed sequences, and over pages.
inline constexpr const char* kFunction = "flash_attention";
inline constexpr const char* kPackedFunction = "flash_attention_varlen";
inline constexpr const char* kPagedFunction = "paged_attention";

// The lengths of the sequences of a batch, int32 or int64. Evaluated arrays are checked at the call, others
// at evaluation.
struct SequenceLengths {
  // These broadcast to (B...); for packed sequences they have one number for each, after mapped axes.
  std::optional<mx::array> q_lens = {}, kv_start = {}, kv_lens = {};
  // Packed sequences: the first row of each, then the number of rows. Both or none.
  std::optional<mx::array> cu_seqlens_q = {}, cu_seqlens_k = {};
};

struct AttentionOptions : SequenceLengths {
  std::optional<double> scale;  // none: E ** -0.5
  std::variant<std::monostate, std::string, mx::array> mask;
  bool causal = false;
  // A number of keys, or the keys before and after a row's position; -1: no limit.
  std::variant<std::monostate, int64_t, std::pair<int64_t, int64_t>> window;
  std::optional<double> softcap;
  std::optional<mx::array> sinks;
  // Fused CPU kernels always are; on a GPU it limits the choice of kernels; the reference graph never is.
  bool batch_invariant = false;
  std::string schedule = "v2";                   // "v1": the loop over keys outside; CPU only
  std::string on_fallback = "warn";              // "error", "warn" or "allow"
  std::function<void(const std::string&)> warn;  // called once for each reason to fall back
  std::optional<std::string> isa;                // CPU instruction set; none: the active one
  std::optional<int> threads;                    // CPU threads; none: the default
  mx::StreamOrDevice stream;
  bool readable = false;    // prefer the readable GPU kernel of the course
  bool return_lse = true;   // MLX's operation has none
  bool own_kernels = true;  // false: as on a GPU without kernels of ours, for tests
};

using OutputAndLse = std::pair<mx::array, mx::array>;
using OutputAndOptionalLse = std::pair<mx::array, std::optional<mx::array>>;

// Attention of query (B..., Hq, L, E) over key (B..., Hkv, S, E) and value (B..., Hkv, S, V): the output
// (B..., Hq, L, V) in their dtype and the natural log-sum-exp of the scores (B..., Hq, L) in float32 if
// `return_lse`. With cu_seqlens_q and cu_seqlens_k, of packed sequences: query and output (T_q, Hq, E), key
// and value (T_k, Hkv, E), log-sum-exp (T_q, Hq).
OutputAndOptionalLse attention(const mx::array& query, const mx::array& key, const mx::array& value,
                               const AttentionOptions& options);

// The same from ordinary MLX operations: O(L * S) memory, derivatives of every order.
OutputAndOptionalLse attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                         const AttentionOptions& options);

// What `attention` and `attention_reference` would do; runs nothing.
Explanation explain_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                              const AttentionOptions& options);
Explanation explain_attention_reference(const mx::array& query, const mx::array& key, const mx::array& value,
                                        const AttentionOptions& options);

// The course's flat form: query (N, L, E), key and value (N_kv, S, E), mask (N, L, S), all float32.
mx::array flash_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                          const std::optional<mx::array>& mask, double scale, bool is_causal,
                          int num_kv_heads, int num_heads,
                          const std::function<void(const std::string&)>& warn, mx::StreamOrDevice stream);

Explanation explain_flash_attention(const mx::array& query, const mx::array& key, const mx::array& value,
                                    const std::optional<mx::array>& mask, double scale, bool is_causal,
                                    int num_kv_heads, int num_heads, mx::StreamOrDevice stream);

// Attention over keys and values in pages (P, num_kv_heads, page, E), all float32: token t of sequence b is
// in slot t % page of page block_table[b][t / page]. Query is (B * num_heads, L, E); its last row is at the
// position of the last of the context_lens[b] tokens. Tokens of a page with an id outside 0 .. P - 1 are
// hidden.
mx::array paged_attention(const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                          const mx::array& block_table, const mx::array& context_lens, double scale,
                          bool is_causal, int num_kv_heads, int num_heads, mx::StreamOrDevice stream);

// How the axes of pages follow each other: (P, Hkv, page, E) or (P, page, Hkv, E).
enum class PageLayout { heads_outside, slots_outside };

struct PagedOptions : AttentionOptions {
  PageLayout layout = PageLayout::heads_outside;
  // The tokens of an id of no page are hidden, as in the course; else one that a query sees is an error.
  bool hide_absent = false;
  // The caller checked the ids: all pages that hold tokens exist. The kernels do not rely on it.
  bool ids_checked = false;
};

// The same for pages of one dtype, float32, float16 or bfloat16, which is that of query and result; sums are
// float32. The pages are not copied. Query is (B, Hq, L, E), or (T_q, Hq, E) with cu_seqlens_q; of the
// options for lengths, q_lens and cu_seqlens_q apply. Also the log-sum-exp (B, Hq, L) or (T_q, Hq), if
// `return_lse`. Table and contexts are integers of any width. A negative context is an error for packed
// queries; of a batch, that sequence is empty. Without a kernel, `on_fallback` decides whether
// `attention_reference` runs on a copy of the pages.
OutputAndOptionalLse attention_in_pages(const mx::array& query, const mx::array& key_pages,
                                        const mx::array& value_pages, const mx::array& block_table,
                                        const mx::array& context_lens, const PagedOptions& options);

// What it would do. Runs nothing.
Explanation explain_attention_in_pages(const mx::array& query, const mx::array& key_pages,
                                       const mx::array& value_pages, const mx::array& block_table,
                                       const mx::array& context_lens, const PagedOptions& options);

// The arrays of one call. The optional ones broadcast: mask to (B..., Hq, L, S), sinks to (B..., Hq), lengths
// to (B...). Packed sequences are rows of one batch entry: query (Hq, T_q, E), key and value (Hkv, T_k, E);
// mx.vmap makes batches of these, in which cu_seqlens and lengths broadcast to (B..., their own axis).
struct AttentionInputs : SequenceLengths {
  AttentionInputs(mx::array query, mx::array key, mx::array value) : query(query), key(key), value(value) {}

  bool packed() const { return cu_seqlens_q.has_value(); }

  mx::array query, key, value;
  std::optional<mx::array> mask, sinks;
};

struct OptionalInput {
  const char* name;
  std::optional<mx::array> AttentionInputs::* member;
  int trailing_axes;  // after the batch axes
};

// In the order of the inputs of the primitive, after query, key and value.
inline constexpr std::array<OptionalInput, 7> kOptionalInputs = {{
    {"mask", &AttentionInputs::mask, 3},
    {"sinks", &AttentionInputs::sinks, 1},
    {"q_lens", &AttentionInputs::q_lens, 0},
    {"kv_start", &AttentionInputs::kv_start, 0},
    {"kv_lens", &AttentionInputs::kv_lens, 0},
    {"cu_seqlens_q", &AttentionInputs::cu_seqlens_q, 0},
    {"cu_seqlens_k", &AttentionInputs::cu_seqlens_k, 0},
}};

// The parameters of one call.
struct AttentionParams {
  std::optional<float> scale;
  int64_t left = kUnbounded, right = kUnbounded;
  float softcap = 0;
  std::array<bool, kOptionalInputs.size()> present = {};  // which optional inputs are given
  const cpu::Kernels* kernels = nullptr;
  cpu::Threads threads = {1, 1};
  bool readable = false;
  bool batch_invariant = false;
  bool keys_outside = false;  // schedule v1

  bool operator==(const AttentionParams&) const = default;
};

// The operation of a call.
inline const char* function_of(const AttentionInputs& inputs) {
  return inputs.packed() ? kPackedFunction : kFunction;
}

// The error for a length out of range names `function`.
OutputAndLse reference_graph(const char* function, const AttentionInputs& inputs,
                             const AttentionParams& params, mx::Stream stream);

// Fused attention. Outputs: O in the dtype of query, LSE in float32.
class Attention : public mx::Primitive {
 public:
  Attention(mx::Stream stream, AttentionParams params) : mx::Primitive(stream), params_(params) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::Attention"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  // Throws for shapes that do not match or have no kernel.
  void check_inputs(const std::vector<mx::array>& inputs);
  // The gradient where no backward kernel computes it.
  std::vector<mx::array> reference_vjp(const std::vector<mx::array>& primals,
                                       const std::vector<mx::array>& cotangents,
                                       const std::vector<int>& argnums, const Problem& problem);

  AttentionParams params_;
};

struct PagedParams : AttentionParams {
  int num_heads = 0;  // of a flat query; else 0
  bool hide_absent = false;
  bool ids_checked = false;
  int64_t checked_pages = 0;  // with ids_checked: the pages of the pool that the ids fit

  bool operator==(const PagedParams&) const = default;
};

// Inputs: query (B, Hq, L, E), flat (B * Hq, L, E) or packed (Hq, T_q, E), key and value pages
// (P, Hkv, page, E), block table (B, pages), context lengths (B), then the optional inputs of Attention.
// Outputs as those of Attention. mx.vmap adds batch axes to a query that is not flat; table and contexts then
// have the sequences of all entries in one axis.
class PagedAttention : public mx::Primitive {
 public:
  PagedAttention(mx::Stream stream, PagedParams params) : mx::Primitive(stream), params_(params) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::PagedAttention"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  PagedParams params_;
};

// alpha x + beta y for floating-point arrays that broadcast, computed in float32.
mx::array axpby(const mx::array& x, const mx::array& y, double alpha, double beta, mx::StreamOrDevice stream);

// a (M, K) times the transposed quantized weights b (N, K * bits / 32), of which each group of K / group_size
// has its scale and bias (N, K / group_size): (M, N) in the dtype of a, summed up in float32. Many rows of
// bfloat16 may take weights rounded to bfloat16.
mx::array quantized_matmul(const mx::array& scales, const mx::array& biases, int group_size, int bits,
                           const mx::array& a, const mx::array& b, bool transpose_b,
                           mx::StreamOrDevice stream);

struct QuantizedParams {
  int group_size, bits;
  const cpu::Kernels* kernels;
  cpu::Threads threads;

  bool operator==(const QuantizedParams&) const = default;
};

// Inputs: a (..., K), b, scales, biases.
class QuantizedMatmul : public mx::Primitive {
 public:
  QuantizedMatmul(mx::Stream stream, QuantizedParams params) : mx::Primitive(stream), params_(params) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::QuantizedMatmul"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  QuantizedParams params_;
};

// x (..., K) times the transposed w (N, K), plus bias (N): (..., N) in the dtype that all have, summed up in
// float32 and rounded once.
mx::array linear(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias,
                 mx::StreamOrDevice stream);

struct LinearParams {
  const cpu::Kernels* kernels;
  cpu::Threads threads;

  bool operator==(const LinearParams&) const = default;
};

// Inputs: x, w and perhaps bias.
class Linear : public mx::Primitive {
 public:
  Linear(mx::Stream stream, LinearParams params) : mx::Primitive(stream), params_(params) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::Linear"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  LinearParams params_;
};

}  // namespace tiny_llm_ext
