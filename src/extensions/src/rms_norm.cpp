// The front door of the root mean square norm, its meaning and its transforms.
#include <cmath>

#include "attention/checks.h"
#include "row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kRmsNorm = "rms_norm";

float check(const mx::array& x, const mx::array& weight, double eps, const mx::array* residual = nullptr) {
  const float checked = check_norm(kRmsNorm, "weight", x, weight, eps);
  if (residual && residual->dtype() != x.dtype())
    reject(kRmsNorm, "residual", to_text(residual->dtype()), to_text(x.dtype()) + ", the dtype of x");
  if (residual && residual->shape() != x.shape())
    reject(kRmsNorm, "residual", to_text(residual->shape()), to_text(x.shape()) + ", the shape of x");
  return checked;
}

}  // namespace

float check_norm(const char* function, const char* argument, const mx::array& x, const mx::array& weight,
                 double eps) {
  check_floating(function, "x", x);
  check_floating(function, argument, weight);
  if (x.ndim() == 0) reject(function, "x", "()", "(..., K)");
  if (weight.ndim() != 1 || weight.shape(0) != x.shape(-1)) {
    reject(function, argument, to_text(weight.shape()),
           "(" + std::to_string(x.shape(-1)) + ",), the last axis of x " + to_text(x.shape()));
  }
  if (!(eps >= 0 && std::isfinite(static_cast<float>(eps))))
    reject(function, "eps", to_text(eps), "a finite number of at least 0");
  return static_cast<float>(eps);
}

mx::array rms_norm(const mx::array& x, const mx::array& weight, double eps, mx::StreamOrDevice stream) {
  const float checked = check(x, weight, eps);
  return mx::array(x.shape(), x.dtype(), std::make_shared<RmsNorm>(cpu_stream(kRmsNorm, stream), checked),
                   {x, weight});
}

std::pair<mx::array, mx::array> add_rms_norm(const mx::array& x, const mx::array& residual,
                                             const mx::array& weight, double eps, mx::StreamOrDevice stream) {
  const float checked = check(x, weight, eps, &residual);
  auto outputs = mx::array::make_arrays({x.shape(), x.shape()}, {x.dtype(), x.dtype()},
                                        std::make_shared<RmsNorm>(cpu_stream(kRmsNorm, stream), checked),
                                        {x, weight, residual});
  return {outputs[0], outputs[1]};
}

// Weights of any shape that broadcasts with x: vmap may bring one for each mapped x.
std::vector<mx::array> RmsNorm::graph(const std::vector<mx::array>& inputs) {
  auto widen = [&](const mx::array& array) { return mx::astype(array, mx::float32, stream()); };
  auto narrow = [&](const mx::array& array) { return mx::astype(array, inputs[0].dtype(), stream()); };
  std::vector<mx::array> outputs;
  mx::array x = inputs[0];
  if (inputs.size() == 3) {
    x = narrow(mx::add(widen(x), widen(inputs[2]), stream()));
    outputs.push_back(x);
  }
  x = widen(x);
  mx::array mean_square = mx::mean(mx::square(x, stream()), -1, true, stream());
  mx::array scale = mx::rsqrt(mx::add(mean_square, mx::array(eps_), stream()), stream());
  mx::array normalised = mx::multiply(x, scale, stream());
  outputs.push_back(narrow(mx::multiply(normalised, widen(inputs[1]), stream())));
  return outputs;
}

std::pair<std::vector<mx::array>, std::vector<int>> RmsNorm::vmap(const std::vector<mx::array>& inputs,
                                                                  const std::vector<int>& axes) {
  int size = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axes[i] >= 0) size = inputs[i].shape(axes[i]);
  }
  std::vector<mx::array> mapped = inputs;
  for (size_t i : {size_t{0}, size_t{2}}) {
    if (i < inputs.size()) mapped[i] = lead(inputs[i], axes[i], size);
  }
  if (axes[1] >= 0) {  // each x has its own weight
    mx::Shape shape(mapped[0].ndim(), 1);
    shape.front() = size;
    shape.back() = mapped[0].shape(-1);
    mapped[1] = mx::reshape(lead(inputs[1], axes[1], size), shape, stream());
    return {graph(mapped), std::vector<int>(inputs.size() - 1, 0)};
  }
  const size_t count = inputs.size() - 1;
  return {mx::array::make_arrays(std::vector<mx::Shape>(count, mapped[0].shape()),
                                 std::vector<mx::Dtype>(count, mapped[0].dtype()),
                                 std::make_shared<RmsNorm>(stream(), eps_), mapped),
          std::vector<int>(count, 0)};
}

bool RmsNorm::is_equivalent(const mx::Primitive& other) const {
  return eps_ == static_cast<const RmsNorm&>(other).eps_;
}

// A shapeless compiled graph asks again for every new set of shapes.
std::vector<mx::Shape> RmsNorm::output_shapes(const std::vector<mx::array>& inputs) {
  check(inputs[0], inputs[1], eps_, inputs.size() == 3 ? &inputs[2] : nullptr);
  return std::vector<mx::Shape>(inputs.size() - 1, inputs[0].shape());
}

}  // namespace tiny_llm_ext
