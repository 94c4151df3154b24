// The small operations around the products of a model, each one primitive with kernels for the CPU: they
// calculate in float32 and round once.
#pragma once

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "core/checks.h"
#include "cpu/kernels/kernels.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

// x (..., K) over the root of the mean square of its last axis, times the weight (K,), which may be of
// another floating-point type.
mx::array rms_norm(const mx::array& x, const mx::array& weight, double eps, mx::StreamOrDevice stream);

// Throws unless `rms_norm` takes these for x; gives eps.
float check_norm(const char* function, const char* argument, const mx::array& x, const mx::array& weight,
                 double eps);

// Where the tokens of each row of a batch begin in their sequences: one number for all rows, one for each, or
// an array () or (N,) of int32 or int64, which is checked at the call if its data is there, or else when it
// is evaluated.
using Offsets = std::variant<int64_t, std::vector<int64_t>, mx::array>;

// x (N, S, H, D) with the pairs of its last axis rotated by the angles of their positions, the S from offset
// on, of which cos and sin (P, D / 2) float32 hold a row each. Pair i is (2i, 2i + 1) if traditional, else
// (i, i + D / 2). The result is (N, H, S, D) if heads_first.
mx::array rope(const mx::array& x, const mx::array& cos, const mx::array& sin, const Offsets& offset,
               bool traditional, bool heads_first, mx::StreamOrDevice stream);

// Throws unless the table and the offset are what `rope` takes for an x (N, S, H, D).
void check_rotation(const char* function, const mx::array& x, const mx::array& cos, const mx::array& sin,
                    const Offsets& offset);

// Such an array, whose data is there, as a number for each row of x; `wrong` is called for one out of range.
std::vector<int64_t> read_offsets(const mx::array& offset, const mx::array& x, const mx::array& cos,
                                  const Wrong& wrong);

// silu(gate) * up for two arrays of one shape and dtype.
mx::array silu_multiply(const mx::array& gate, const mx::array& up, mx::StreamOrDevice stream);

// The rows at `ids` (...) of the quantized weights (V, K * bits / 32), each group of K / group_size with its
// scale and bias (V, K / group_size): (..., K) in the dtype of scales. An id outside 0 .. V - 1 gives NaN.
mx::array quantized_rows(const mx::array& ids, const mx::array& weight, const mx::array& scales,
                         const mx::array& biases, int group_size, int bits, mx::StreamOrDevice stream);

// Along the last axis of x (..., V): the index of the largest number, as mx::argmax defines it; the k largest
// numbers and their indices (..., k), in falling order and of equals the first one first; and log(sum e^x) in
// float32.
mx::array argmax(const mx::array& x, mx::StreamOrDevice stream);
std::pair<mx::array, mx::array> top_k(const mx::array& x, int k, mx::StreamOrDevice stream);
mx::array logsumexp(const mx::array& x, mx::StreamOrDevice stream);

// An index for each row of logits (..., V), drawn with the probabilities e^x / sum e^x: the first one up to
// which they add up to more than that row's number of uniform (...), float32 from [0, 1).
mx::array categorical(const mx::array& logits, const mx::array& uniform, mx::StreamOrDevice stream);

// What these primitives share. The kernels and the number of threads are those of the process.
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
  // The meaning in MLX operations, through which derivatives go. Throws NotImplemented where there are none.
  virtual std::vector<mx::array> graph(const std::vector<mx::array>& inputs);

  // The input with the mapped axis in front, or repeated along a new one of that size where it has none.
  mx::array lead(const mx::array& input, int axis, int size);

  const cpu::RowKernels& kernels_of(const mx::array& x) const;

  const char* function_;
  const cpu::Kernels& kernels_;
  int threads_;

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
  std::variant<int64_t, std::vector<int64_t>> offset;  // unless it is an input
  bool traditional, heads_first;
  bool inverse = false;

  bool operator==(const RopeParams&) const = default;
};

// Inputs: x, cos, sin and perhaps the offset. Linear in x: derivatives are rotations too.
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
