// The dense product: its entry point with the checks, its primitive and its transforms.
#include "core/checks.h"
#include "core/product_shape.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kLinear = "linear";

void check_linear(const std::vector<mx::array>& inputs) {
  constexpr const char* kArguments[] = {"x", "w", "bias"};
  const std::initializer_list<std::string_view> shapes[] = {{"M...", "K"}, {"N", "K"}, {"N"}};
  check_floating(kLinear, "x", inputs[0]);
  Dims dims(kLinear);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].dtype() != inputs[0].dtype()) {
      reject(kLinear, kArguments[i], to_text(inputs[i].dtype()),
             to_text(inputs[0].dtype()) + ", the dtype of x");
    }
    dims.match(kArguments[i], inputs[i].shape(), shapes[i]);
  }
}

mx::array product(const std::vector<mx::array>& inputs, LinearParams params, mx::Stream stream) {
  return mx::array(product_shape(inputs[0], inputs[1]), inputs[0].dtype(),
                   std::make_shared<Linear>(stream, params), inputs);
}

// (..., K) -> (M, K)
mx::array as_matrix(const mx::array& x, mx::Stream stream) {
  return x.ndim() == 1 ? mx::expand_dims(x, 0, stream) : mx::flatten(x, 0, -2, stream);
}

}  // namespace

mx::array linear(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias,
                 mx::StreamOrDevice stream) {
  std::vector<mx::array> inputs = {x, w};
  if (bias) inputs.push_back(*bias);
  check_linear(inputs);
  return product(inputs, {&cpu::active_kernels(), cpu::active_threads()}, cpu_stream(kLinear, stream));
}

// There is no dense product on GPUs: MLX's own are tuned there. Only a graph that was moved to a GPU calls
// this.
void Linear::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  cpu_stream(kLinear, stream());
}

// Each gradient is a product of the same kind: dx = dy w, dw = dy^T x; that of the bias is the sum of dy.
std::vector<mx::array> Linear::vjp(const std::vector<mx::array>& primals,
                                   const std::vector<mx::array>& cotangents, const std::vector<int>& argnums,
                                   const std::vector<mx::array>&) {
  const mx::array& dy = cotangents[0];
  auto transposed = [&](const mx::array& x) { return mx::transpose(as_matrix(x, stream()), stream()); };
  std::vector<mx::array> gradients;
  for (int argument : argnums) {
    if (argument == 0) {
      gradients.push_back(product({dy, transposed(primals[1])}, params_, stream()));
    } else if (argument == 1) {
      gradients.push_back(product({transposed(dy), transposed(primals[0])}, params_, stream()));
    } else {
      mx::array sum = mx::sum(mx::astype(as_matrix(dy, stream()), mx::float32, stream()), 0, false, stream());
      gradients.push_back(mx::astype(sum, dy.dtype(), stream()));
    }
  }
  return gradients;
}

// The product is linear in x and in w, so their tangents are added. The tangent of the bias is broadcast to
// the shape of the product as an array: a list of sizes would be fixed in a shapeless graph.
std::vector<mx::array> Linear::jvp(const std::vector<mx::array>& primals,
                                   const std::vector<mx::array>& tangents, const std::vector<int>& argnums) {
  std::optional<mx::array> sum;
  auto add = [&](const mx::array& term) { sum = sum ? mx::add(*sum, term, stream()) : term; };
  for (size_t i = 0; i < argnums.size(); i++) {
    if (argnums[i] == 0) add(product({tangents[i], primals[1]}, params_, stream()));
    if (argnums[i] == 1) add(product({primals[0], tangents[i]}, params_, stream()));
    if (argnums[i] == 2) {
      const mx::array y = product({primals[0], primals[1]}, params_, stream());
      add(mx::broadcast_arrays({tangents[i], y}, stream())[0]);
    }
  }
  return {*sum};
}

// A mapped axis of x becomes more rows. With mapped weights, each entry is a product of its own.
std::pair<std::vector<mx::array>, std::vector<int>> Linear::vmap(const std::vector<mx::array>& inputs,
                                                                 const std::vector<int>& axes) {
  bool rows_only = axes[0] >= 0;
  for (size_t i = 1; i < axes.size(); i++) rows_only = rows_only && axes[i] < 0;
  if (rows_only) {
    std::vector<mx::array> moved = inputs;
    moved[0] = mx::moveaxis(inputs[0], axes[0], 0, stream());
    return {{product(moved, params_, stream())}, {0}};
  }
  int count = 0;
  for (size_t i = 0; i < axes.size(); i++) {
    if (axes[i] >= 0) count = inputs[i].shape(axes[i]);
  }
  if (count == 0) {
    mx::Shape shape = inputs[0].shape();
    if (axes[0] >= 0) shape.erase(shape.begin() + axes[0]);
    shape.back() = inputs[1].shape(axes[1] == 0 ? 1 : 0);
    shape.insert(shape.begin(), 0);
    return {{mx::zeros(shape, inputs[0].dtype(), stream())}, {0}};
  }
  std::vector<mx::array> results;
  for (int n = 0; n < count; n++) {
    std::vector<mx::array> own = inputs;
    for (size_t i = 0; i < axes.size(); i++) {
      if (axes[i] >= 0) own[i] = mx::take(inputs[i], n, axes[i], stream());
    }
    results.push_back(product(own, params_, stream()));
  }
  return {{mx::stack(results, 0, stream())}, {0}};
}

bool Linear::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const Linear&>(other).params_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> Linear::output_shapes(const std::vector<mx::array>& inputs) {
  check_linear(inputs);
  return {product_shape(inputs[0], inputs[1])};
}

}  // namespace tiny_llm_ext
