// Linear layers on quantized weights, with what a transformer does before and after them in the same pass.
#pragma once

#include <optional>
#include <vector>

#include "rows/row_operations.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// A matrix (N, K) of `bits` bits a number: see `quantized_matmul`. The bias is (N,).
struct QuantizedMatrix {
  mx::array weight, scales, biases;
  std::optional<mx::array> bias;
};

// The root mean square norm with a weight (K,), which x passes first: see `rms_norm`.
struct FirstNorm {
  mx::array weight;
  double eps;
};

// What errors call the function and its arguments.
struct QuantizedNames {
  const char *function, *rows, *weight;
};

// Throws unless the arrays are a quantized matrix b and rows a (..., K) that fit it.
void check_quantized(const QuantizedNames& names, const mx::array& scales, const mx::array& biases,
                     int group_size, int bits, const mx::array& a, const mx::array& b);

// The product of such arrays, a (..., K), b, scales and biases, by the primitive, checked before: (..., N).
mx::array quantized_product(const std::vector<mx::array>& inputs, QuantizedParams params, mx::Stream stream);

// One evaluation.
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
// residual (..., N) is added to a single result. Each of these steps rounds, as if it were an operation of
// its own. With a `split` the results are (..., N / split, split): heads of that size.
std::vector<mx::array> quantized_linear(const mx::array& x, const std::vector<QuantizedMatrix>& matrices,
                                        int group_size, int bits, const std::optional<FirstNorm>& norm,
                                        const std::optional<mx::array>& residual, bool gated,
                                        std::optional<int> split, mx::StreamOrDevice stream);

struct QuantizedLinearParams : QuantizedParams {
  bool biased, residual, gated;
  int split;                 // 0: the results are not split
  std::optional<float> eps;  // of the norm, if there is one

  bool operator==(const QuantizedLinearParams&) const = default;
};

// What the inputs of a QuantizedLinear stand for.
QuantizedCall quantized_call(const std::vector<mx::array>& inputs, const QuantizedLinearParams& params);

// Inputs: x, perhaps the residual, perhaps the weight of the norm, then each matrix: weight, scales, biases
// and perhaps the bias.
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
