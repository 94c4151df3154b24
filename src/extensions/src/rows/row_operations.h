// Row operations: the small operations between the products of a model, each a primitive with CPU kernels.
// They calculate in float32 and round once.
#pragma once

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "core/checks.h"
#include "cpu/interface/kernels.h"
#include "cpu/interface/threads.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

// x (..., K) divided by the root of the mean square of its last axis, times the weight (K,), which may have
// another floating-point type.
mx::array rms_norm(const mx::array& x, const mx::array& weight, double eps, mx::StreamOrDevice stream);

// Throws unless these are valid arguments of `rms_norm`; returns eps.
float check_norm(const char* function, const char* argument, const mx::array& x, const mx::array& weight,
                 double eps);

// The position of the first token of each row of a batch: one number for all rows, one for each, or an array
// () or (N,) of int32 or int64. An array is checked at the call if it is computed, else at evaluation.
using Offsets = std::variant<int64_t, std::vector<int64_t>, mx::array>;

// The same as numbers.
using TokenOffsets = std::variant<int64_t, std::vector<int64_t>>;
int64_t offset_of(const TokenOffsets& offsets, int64_t row);

// x (N, S, H, D) with the pairs of its last axis rotated by the angles of the positions offset .. offset + S
// - 1. Row p of cos and sin (P, D / 2) float32 belongs to position p. Pair i is (2i, 2i + 1) if traditional,
// else (i, i + D / 2). The result is (N, H, S, D) if heads_first.
mx::array rope(const mx::array& x, const mx::array& cos, const mx::array& sin, const Offsets& offset,
               bool traditional, bool heads_first, mx::StreamOrDevice stream);

// Throws unless these are valid arguments of `rope` for an x (N, S, H, D).
void check_rotation(const char* function, const mx::array& x, const mx::array& cos, const mx::array& sin,
                    const Offsets& offset);

// The offset of each row of x from a computed array; calls `report` for one that is out of range.
std::vector<int64_t> read_offsets(const mx::array& offset, const mx::array& x, const mx::array& cos,
                                  const ReportError& report);

// silu(gate) * up for two arrays of one shape and dtype.
mx::array silu_multiply(const mx::array& gate, const mx::array& up, mx::StreamOrDevice stream);

// The rows `ids` (...) of the quantized weights (V, K * bits / 32), with scales and biases (V, K /
// group_size):
// (..., K) in the dtype of scales. An id outside 0 .. V - 1 gives a row of NaN.
mx::array quantized_rows(const mx::array& ids, const mx::array& weight, const mx::array& scales,
                         const mx::array& biases, int group_size, int bits, mx::StreamOrDevice stream);

// Along the last axis of x (..., V): the index of the largest number, as in mx::argmax; the k largest numbers
// and their indices (..., k), in descending order, equal ones by index; and log(sum e^x) in float32.
mx::array argmax(const mx::array& x, mx::StreamOrDevice stream);
std::pair<mx::array, mx::array> top_k(const mx::array& x, int k, mx::StreamOrDevice stream);
mx::array logsumexp(const mx::array& x, mx::StreamOrDevice stream);

// An index for each row of logits (..., V), drawn with probabilities e^x / sum e^x: the first one at which
// their running sum exceeds the row's number in uniform (...), float32 in [0, 1).
mx::array categorical(const mx::array& logits, const mx::array& uniform, mx::StreamOrDevice stream);

// The base class of these primitives. Kernels and numbers of threads are those of the process when they are
// made.
class RowOperation : public mx::Primitive {
 public:
  // `function` is the name in errors.
  RowOperation(const char* function, mx::Stream stream);

  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;

  const char* name() const override { return function_; }

 protected:
  // The same in MLX operations, for derivatives. Throws NotImplemented if there are no derivatives.
  virtual std::vector<mx::array> graph(const std::vector<mx::array>& inputs);

  // The input with its mapped axis first. Without one (axis < 0), it is broadcast along a new axis of `size`.
  mx::array mapped_axis_first(const mx::array& input, int axis, int size);

  const cpu::RowKernels& kernels_of(const mx::array& x) const;
  // For so many rows of a type.
  int threads_for(int64_t rows, mx::Dtype dtype) const;

  const char* function_;
  const cpu::Kernels& kernels_;
  cpu::Threads threads_;

 private:
  std::function<std::vector<mx::array>(const std::vector<mx::array>&)> graph_along(
      const std::vector<mx::array>& inputs, const std::vector<int>& argnums);
};

// Inputs: x, weight.
class RmsNorm : public RowOperation {
 public:
  RmsNorm(mx::Stream stream, float eps) : RowOperation("rms_norm", stream), eps_(eps) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 protected:
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  float eps_;
};

struct RopeParams {
  TokenOffsets offset;  // unless the offset is an input
  bool traditional, heads_first;
  bool inverse = false;

  bool operator==(const RopeParams&) const = default;
};

// Inputs: x, cos, sin and optionally the offset. Linear in x: its derivatives are rotations.
class Rope : public RowOperation {
 public:
  Rope(mx::Stream stream, RopeParams params) : RowOperation("rope", stream), params_(std::move(params)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  RopeParams params_;
};

// Inputs: gate, up.
class SiluMultiply : public RowOperation {
 public:
  explicit SiluMultiply(mx::Stream stream) : RowOperation("silu_multiply", stream) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive&) const override { return true; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 protected:
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;
};

// Inputs: ids, weight, scales, biases. No derivatives.
class QuantizedRows : public RowOperation {
 public:
  QuantizedRows(mx::Stream stream, int group_size, int bits)
      : RowOperation("quantized_rows", stream), group_size_(group_size), bits_(bits) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  int group_size_, bits_;
};

// Input: x. No derivatives.
class ArgMax : public RowOperation {
 public:
  explicit ArgMax(mx::Stream stream) : RowOperation("argmax", stream) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive&) const override { return true; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;
};

// Inputs: logits, uniform. No derivatives.
class Categorical : public RowOperation {
 public:
  explicit Categorical(mx::Stream stream) : RowOperation("categorical", stream) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive&) const override { return true; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;
};

// Input: x. Outputs: numbers, indices.
class TopK : public RowOperation {
 public:
  TopK(mx::Stream stream, int k) : RowOperation("top_k", stream), k_(k) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 protected:
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  int k_;
};

// Input: x.
class LogSumExp : public RowOperation {
 public:
  explicit LogSumExp(mx::Stream stream) : RowOperation("logsumexp", stream) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive&) const override { return true; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 protected:
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;
};

}  // namespace tiny_llm_ext
