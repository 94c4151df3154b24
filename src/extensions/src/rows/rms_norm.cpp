// The operation `rms_norm`: the root mean square norm.
#include <cmath>

#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kRmsNorm = "rms_norm";

mx::array normalised(std::vector<mx::array> inputs, float eps, mx::Stream stream) {
  const mx::Shape shape = inputs[0].shape();
  const mx::Dtype dtype = inputs[0].dtype();
  return mx::array(shape, dtype, std::make_shared<RmsNorm>(stream, eps), std::move(inputs));
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
  const float checked = check_norm(kRmsNorm, "weight", x, weight, eps);
  return normalised({x, weight}, checked, cpu_stream(kRmsNorm, stream));
}

// The weight has any shape that broadcasts with x: vmap may have one for each mapped x.
std::vector<mx::array> RmsNorm::graph(const std::vector<mx::array>& inputs) {
  auto widen = [&](const mx::array& array) { return mx::astype(array, mx::float32, stream()); };
  const mx::array x = widen(inputs[0]);
  mx::array mean_square = mx::mean(mx::square(x, stream()), -1, true, stream());
  mx::array scale = mx::rsqrt(mx::add(mean_square, mx::array(eps_), stream()), stream());
  mx::array weighted = mx::multiply(mx::multiply(x, scale, stream()), widen(inputs[1]), stream());
  return {mx::astype(weighted, inputs[0].dtype(), stream())};
}

std::pair<std::vector<mx::array>, std::vector<int>> RmsNorm::vmap(const std::vector<mx::array>& inputs,
                                                                  const std::vector<int>& axes) {
  const int size = axes[0] >= 0 ? inputs[0].shape(axes[0]) : inputs[1].shape(axes[1]);
  std::vector<mx::array> mapped = {mapped_axis_first(inputs[0], axes[0], size), inputs[1]};
  if (axes[1] >= 0) {  // one weight for each mapped x
    mx::Shape shape(mapped[0].ndim(), 1);
    shape.front() = size;
    shape.back() = mapped[0].shape(-1);
    mapped[1] = mx::reshape(mapped_axis_first(inputs[1], axes[1], size), shape, stream());
    return {graph(mapped), {0}};
  }
  return {{normalised(std::move(mapped), eps_, stream())}, {0}};
}

bool RmsNorm::is_equivalent(const mx::Primitive& other) const {
  return eps_ == static_cast<const RmsNorm&>(other).eps_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> RmsNorm::output_shapes(const std::vector<mx::array>& inputs) {
  check_norm(kRmsNorm, "weight", inputs[0], inputs[1], eps_);
  return {inputs[0].shape()};
}

}  // namespace tiny_llm_ext
