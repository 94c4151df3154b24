// Linear layers on quantized weights, fused with the norm before them and bias, gate and residual after them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rows/row_operations.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Packed weights (N, K), see `quantized_matmul`, and a bias (N,).
struct QuantizedMatrix {
  mx::array weight, scales, biases;
  std::optional<mx::array> bias;
};

// RMS norm of x with a weight (K,), see `rms_norm`.
struct FirstNorm {
  mx::array weight;
  double eps;
};

// The names of the function and its arguments in errors.
struct QuantizedNames {
  const char *function, *rows, *weight;
};

// Throws unless the arrays are a quantized matrix b and rows a (..., K) that fit it.
void check_quantized(const QuantizedNames& names, const mx::array& scales, const mx::array& biases,
                     int group_size, int bits, const mx::array& a, const mx::array& b);

// The product a b^T, (..., N), of checked inputs: a (..., K), b, scales and biases.
mx::array quantized_product(const std::vector<mx::array>& inputs, QuantizedParams params, mx::Stream stream);

// The arguments of one evaluation.
struct QuantizedCall {
  mx::array x;
  std::vector<QuantizedMatrix> matrices;
  std::optional<FirstNorm> norm;
  std::optional<mx::array> residual;
  bool gated;
  QuantizedParams params;
};

// x (..., K), normalised if there is a norm, times the transpose of each matrix, plus its bias: arrays (...,
// N) in the dtype of x. If gated there are two matrices of one shape and one result, silu(first) * second. A
// residual (..., N) is added to a single result. Each step rounds like an operation of its own. With a
// `split` the results are (..., N / split, split): heads of that size.
std::vector<mx::array> quantized_linear(const mx::array& x, const std::vector<QuantizedMatrix>& matrices,
                                        int group_size, int bits, const std::optional<FirstNorm>& norm,
                                        const std::optional<mx::array>& residual, bool gated,
                                        std::optional<int> split, mx::StreamOrDevice stream);

namespace cpu {
class LayerWeights;

// Evaluated matrices of one input, and its norm, as addresses; the arrays must outlive them.
std::shared_ptr<const LayerWeights> place_weights(const std::vector<QuantizedMatrix>& matrices,
                                                  const std::optional<FirstNorm>& norm, int group_size,
                                                  int bits, int threads);
}  // namespace cpu

struct QuantizedLinearParams : QuantizedParams {
  bool biased, residual, gated;
  int split;                 // 0: the results are not split
  std::optional<float> eps;  // of the norm

  bool operator==(const QuantizedLinearParams&) const = default;
};

// The call that the inputs of a QuantizedLinear represent.
QuantizedCall quantized_call(const std::vector<mx::array>& inputs, const QuantizedLinearParams& params);

// Inputs: x, the residual if any, the weight of the norm if any, then for each matrix weight, scales, biases
// and the bias if any.
class QuantizedLinear : public RowOperation {
 public:
  QuantizedLinear(mx::Stream stream, QuantizedLinearParams params)
      : RowOperation("quantized_linear", stream), params_(params) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 protected:
  std::vector<mx::array> graph(const std::vector<mx::array>& inputs) override;

 private:
  QuantizedLinearParams params_;
};

}  // namespace tiny_llm_ext
