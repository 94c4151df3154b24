// Linear layers on quantized weights: their entry point with the checks, their reference graph and
// transforms.
#include "quantized_linear.h"

#include "core/checks.h"
#include "core/product_shape.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kQuantizedLinear = "quantized_linear";

void check_vector(const char* argument, const mx::array& vector, const mx::array& x, const mx::Shape& shape) {
  if (vector.dtype() != x.dtype())
    reject(kQuantizedLinear, argument, to_text(vector.dtype()), to_text(x.dtype()) + ", the dtype of x");
  if (vector.shape() != shape) reject(kQuantizedLinear, argument, to_text(vector.shape()), to_text(shape));
}

mx::Shape result_shape(const mx::array& x, const mx::array& weight, int split) {
  mx::Shape shape = product_shape(x, weight);
  if (split > 0) {
    shape.back() /= split;
    shape.push_back(split);
  }
  return shape;
}

void check_call(const QuantizedCall& call, std::optional<int> split) {
  const mx::array& x = call.x;
  const std::vector<QuantizedMatrix>& matrices = call.matrices;
  if (x.ndim() == 0) reject(kQuantizedLinear, "x", "()", "(..., K)");
  if (matrices.empty()) reject(kQuantizedLinear, "matrices", "none", "at least one");
  if (call.gated && matrices.size() != 2)
    reject(kQuantizedLinear, "matrices", std::to_string(matrices.size()), "2, as gated is True");
  if (call.residual && matrices.size() != 1 && !call.gated)
    reject(kQuantizedLinear, "residual", std::to_string(matrices.size()) + " results",
           "one result to add it to");
  if (split && (call.residual || call.gated))
    reject(kQuantizedLinear, "split", std::to_string(*split), "none with residual or gated");
  for (const QuantizedMatrix& matrix : matrices) {
    check_quantized({kQuantizedLinear, "x", "weight"}, matrix.scales, matrix.biases, call.params.group_size,
                    call.params.bits, x, matrix.weight);
    if (matrix.bias) check_vector("bias", *matrix.bias, x, {matrix.weight.shape(0)});
    if (matrix.bias.has_value() != matrices[0].bias.has_value())
      reject(kQuantizedLinear, "bias", "some matrices with one", "one for each matrix, or for none");
    if (split && (*split < 1 || matrix.weight.shape(0) % *split != 0)) {
      reject(kQuantizedLinear, "split", std::to_string(*split),
             "a divisor of the " + std::to_string(matrix.weight.shape(0)) + " rows of each weight");
    }
  }
  if (call.gated && matrices[0].weight.shape() != matrices[1].weight.shape()) {
    reject(kQuantizedLinear, "matrices", to_text(matrices[1].weight.shape()),
           to_text(matrices[0].weight.shape()) + " as the first, as gated is True");
  }
  if (call.residual) check_vector("residual", *call.residual, x, product_shape(x, matrices[0].weight));
  if (call.norm) check_norm(kQuantizedLinear, "norm", x, call.norm->weight, call.norm->eps);
}

std::vector<mx::Shape> result_shapes(const std::vector<mx::array>& inputs,
                                     const QuantizedLinearParams& params) {
  const QuantizedCall call = quantized_call(inputs, params);
  std::vector<mx::Shape> shapes;
  for (const QuantizedMatrix& matrix : call.matrices) {
    shapes.push_back(result_shape(call.x, matrix.weight, params.split));
    if (call.gated) break;
  }
  return shapes;
}

std::vector<mx::array> results(const std::vector<mx::array>& inputs, const QuantizedLinearParams& params,
                               mx::Stream stream) {
  std::vector<mx::Shape> shapes = result_shapes(inputs, params);
  const std::vector<mx::Dtype> dtypes(shapes.size(), inputs[0].dtype());
  return mx::array::make_arrays(std::move(shapes), dtypes, std::make_shared<QuantizedLinear>(stream, params),
                                inputs);
}

}  // namespace

QuantizedCall quantized_call(const std::vector<mx::array>& inputs, const QuantizedLinearParams& params) {
  QuantizedCall call = {inputs[0], {}, {}, {}, params.gated, params};
  size_t next = 1;
  if (params.residual) call.residual = inputs[next++];
  if (params.eps) call.norm = {inputs[next++], *params.eps};
  const size_t step = params.biased ? 4 : 3;
  for (size_t i = next; i < inputs.size(); i += step) {
    call.matrices.push_back({inputs[i], inputs[i + 1], inputs[i + 2], {}});
    if (params.biased) call.matrices.back().bias = inputs[i + 3];
  }
  return call;
}

std::vector<mx::array> quantized_linear(const mx::array& x, const std::vector<QuantizedMatrix>& matrices,
                                        int group_size, int bits, const std::optional<FirstNorm>& norm,
                                        const std::optional<mx::array>& residual, bool gated,
                                        std::optional<int> split, mx::StreamOrDevice stream) {
  const QuantizedParams params = {group_size, bits, &cpu::active_kernels(), cpu::active_threads()};
  check_call({x, matrices, norm, residual, gated, params}, split);
  std::vector<mx::array> inputs = {x};
  if (residual) inputs.push_back(*residual);
  std::optional<float> eps;
  if (norm) {
    eps = static_cast<float>(norm->eps);
    inputs.push_back(norm->weight);
  }
  for (const QuantizedMatrix& matrix : matrices) {
    inputs.insert(inputs.end(), {matrix.weight, matrix.scales, matrix.biases});
    if (matrix.bias) inputs.push_back(*matrix.bias);
  }
  return results(inputs,
                 {params, matrices[0].bias.has_value(), residual.has_value(), gated, split.value_or(0), eps},
                 cpu_stream(kQuantizedLinear, stream));
}

// One product after the other. There are no derivatives with respect to weights, scales and biases.
std::vector<mx::array> QuantizedLinear::graph(const std::vector<mx::array>& inputs) {
  const QuantizedCall call = quantized_call(inputs, params_);
  const mx::array x = call.norm ? rms_norm(call.x, call.norm->weight, call.norm->eps, stream()) : call.x;
  std::vector<mx::array> outputs;
  for (const QuantizedMatrix& matrix : call.matrices) {
    mx::array product =
        quantized_product({x, matrix.weight, matrix.scales, matrix.biases}, params_, stream());
    if (matrix.bias) product = mx::add(product, *matrix.bias, stream());
    // Only the last axis is split, so the graph holds for any shape of x.
    if (params_.split > 0) product = mx::unflatten(product, -1, {-1, params_.split}, stream());
    outputs.push_back(product);
  }
  if (call.gated) {
    auto to_f32 = [&](const mx::array& array) { return mx::astype(array, mx::float32, stream()); };
    const mx::array gate = to_f32(outputs[0]);
    const mx::array gated =
        mx::multiply(mx::multiply(gate, mx::sigmoid(gate, stream()), stream()), to_f32(outputs[1]), stream());
    outputs = {mx::astype(gated, call.x.dtype(), stream())};
  }
  if (call.residual) outputs[0] = mx::add(*call.residual, outputs[0], stream());
  return outputs;
}

// A mapped axis becomes more rows.
std::pair<std::vector<mx::array>, std::vector<int>> QuantizedLinear::vmap(
    const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  const size_t rows = params_.residual ? 2 : 1;
  int size = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axes[i] < 0) continue;
    if (i >= rows)
      throw NotImplemented(std::string(kQuantizedLinear) + ": vmap is supported along x and residual only");
    size = inputs[i].shape(axes[i]);
  }
  std::vector<mx::array> mapped = inputs;
  for (size_t i = 0; i < rows; i++) mapped[i] = mapped_axis_first(inputs[i], axes[i], size);
  std::vector<mx::array> outputs = results(mapped, params_, stream());
  return {outputs, std::vector<int>(outputs.size(), 0)};
}

bool QuantizedLinear::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const QuantizedLinear&>(other).params_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> QuantizedLinear::output_shapes(const std::vector<mx::array>& inputs) {
  check_call(quantized_call(inputs, params_),
             params_.split > 0 ? std::optional(params_.split) : std::nullopt);
  return result_shapes(inputs, params_);
}

}  // namespace tiny_llm_ext
