// The operation `categorical`: a draw by log probabilities.
#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kCategorical = "categorical";

void check_logits(const mx::array& logits, const mx::array& uniform) {
  check_floating(kCategorical, "logits", logits);
  if (logits.ndim() == 0 || logits.shape(-1) == 0)
    reject(kCategorical, "logits", to_text(logits.shape()), "(..., V) with V of at least 1");
  if (uniform.dtype() != mx::float32) reject(kCategorical, "uniform", to_text(uniform.dtype()), "float32");
  mx::Shape rows(logits.shape().begin(), logits.shape().end() - 1);
  if (uniform.shape() != rows)
    reject(kCategorical, "uniform", to_text(uniform.shape()), to_text(rows) + ", one for each row of logits");
}

mx::array drawn(const mx::array& logits, const mx::array& uniform, mx::Stream stream) {
  return mx::array(uniform.shape(), mx::uint32, std::make_shared<Categorical>(stream), {logits, uniform});
}

}  // namespace

mx::array categorical(const mx::array& logits, const mx::array& uniform, mx::StreamOrDevice stream) {
  check_logits(logits, uniform);
  return drawn(logits, uniform, cpu_stream(kCategorical, stream));
}

std::pair<std::vector<mx::array>, std::vector<int>> Categorical::vmap(const std::vector<mx::array>& inputs,
                                                                      const std::vector<int>& axes) {
  const int size = axes[0] >= 0 ? inputs[0].shape(axes[0]) : inputs[1].shape(axes[1]);
  return {{drawn(mapped_axis_first(inputs[0], axes[0], size), mapped_axis_first(inputs[1], axes[1], size),
                 stream())},
          {0}};
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> Categorical::output_shapes(const std::vector<mx::array>& inputs) {
  check_logits(inputs[0], inputs[1]);
  return {inputs[1].shape()};
}

}  // namespace tiny_llm_ext
