// The operation `silu_multiply`: silu(gate) * up.
#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kSiluMultiply = "silu_multiply";

void check_gate(const mx::array& gate, const mx::array& up) {
  check_floating(kSiluMultiply, "gate", gate);
  if (up.dtype() != gate.dtype())
    reject(kSiluMultiply, "up", to_text(up.dtype()), to_text(gate.dtype()) + ", the dtype of gate");
  if (up.shape() != gate.shape())
    reject(kSiluMultiply, "up", to_text(up.shape()), to_text(gate.shape()) + ", the shape of gate");
}

}  // namespace

mx::array silu_multiply(const mx::array& gate, const mx::array& up, mx::StreamOrDevice stream) {
  check_gate(gate, up);
  return mx::array(gate.shape(), gate.dtype(),
                   std::make_shared<SiluMultiply>(cpu_stream(kSiluMultiply, stream)), {gate, up});
}

std::vector<mx::array> SiluMultiply::graph(const std::vector<mx::array>& inputs) {
  auto widen = [&](const mx::array& array) { return mx::astype(array, mx::float32, stream()); };
  mx::array gate = widen(inputs[0]);
  mx::array activated = mx::multiply(gate, mx::sigmoid(gate, stream()), stream());
  mx::array product = mx::multiply(activated, widen(inputs[1]), stream());
  return {mx::astype(product, inputs[0].dtype(), stream())};
}

std::pair<std::vector<mx::array>, std::vector<int>> SiluMultiply::vmap(const std::vector<mx::array>& inputs,
                                                                       const std::vector<int>& axes) {
  const int size = axes[0] >= 0 ? inputs[0].shape(axes[0]) : inputs[1].shape(axes[1]);
  mx::array gate = mapped_axis_first(inputs[0], axes[0], size),
            up = mapped_axis_first(inputs[1], axes[1], size);
  return {{mx::array(gate.shape(), gate.dtype(), std::make_shared<SiluMultiply>(stream()), {gate, up})}, {0}};
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> SiluMultiply::output_shapes(const std::vector<mx::array>& inputs) {
  check_gate(inputs[0], inputs[1]);
  return {inputs[0].shape()};
}

}  // namespace tiny_llm_ext
