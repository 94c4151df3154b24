// The graph side of the backward kernels.
#include "attention/transforms/gradient.h"

#include "attention/inputs.h"
#include "core/checks.h"

namespace tiny_llm_ext {
namespace {

constexpr size_t kCotangents = 4;

// The size of the mapped axis.
int mapped_size(const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axes[i] >= 0) return inputs[i].shape(axes[i]);
  }
  return 1;
}

mx::array mapped_or_repeated(const mx::array& x, int axis, int size, mx::Stream stream) {
  if (axis >= 0) return mx::moveaxis(x, axis, 0, stream);
  mx::Shape shape = x.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(x, shape, stream);
}

// Moves the mapped axis of an optional input before its batch axes; `rank` counts those and the trailing
// axes.
mx::array mapped_axis_first(const mx::array& x, int axis, int rank, mx::Stream stream) {
  mx::array moved = mx::moveaxis(x, axis, 0, stream);
  std::vector<int> missing;
  for (int i = static_cast<int>(moved.ndim()); i < rank; i++)
    missing.push_back(1 + static_cast<int>(missing.size()));
  return missing.empty() ? moved : mx::expand_dims(moved, missing, stream);
}

}  // namespace

Verdict fused_gradient(const Problem& problem) {
  for (const char* pass : {"backward_dq", "backward_dkv"}) {
    if (Verdict verdict = fused_kernel(problem, pass); !verdict.ok) return verdict;
  }
  return {true, ""};
}

void refuse_second_derivative() {
  throw NotImplemented("second derivative of flash_attention is not supported; use attention_reference");
}

std::vector<mx::array> map_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                  const AttentionParams& params, mx::Stream stream) {
  const int size = mapped_size(inputs, axes);
  std::vector<mx::array> mapped;
  for (int i = 0; i < 3; i++) mapped.push_back(mapped_or_repeated(inputs[i], axes[i], size, stream));
  const int batch_axes = static_cast<int>(mapped[0].ndim()) - 3;
  int next = 3;
  for (size_t i = 0; i < kOptionalInputs.size(); i++) {
    if (!params.present[i]) continue;
    const int rank = batch_axes + kOptionalInputs[i].trailing_axes;
    mapped.push_back(axes[next] >= 0 ? mapped_axis_first(inputs[next], axes[next], rank, stream)
                                     : inputs[next]);
    next++;
  }
  return mapped;
}

std::vector<mx::array> AttentionGradient::apply(const std::vector<mx::array>& inputs,
                                                const GradientParams& params, mx::Stream stream) {
  auto primitive = std::make_shared<AttentionGradient>(stream, params);
  std::vector<mx::Dtype> dtypes;
  if (params.query) dtypes.push_back(inputs[0].dtype());
  if (params.key_value) dtypes.insert(dtypes.end(), {inputs[1].dtype(), inputs[2].dtype()});
  if (params.sinks) dtypes.push_back(mx::float32);
  return mx::array::make_arrays(primitive->output_shapes(inputs), dtypes, primitive, inputs);
}

std::vector<mx::Shape> AttentionGradient::output_shapes(const std::vector<mx::array>& inputs) {
  const mx::Shape& query = inputs[0].shape();
  std::vector<mx::Shape> shapes;
  if (params_.query) shapes.push_back(query);
  if (params_.key_value) shapes.insert(shapes.end(), {inputs[1].shape(), inputs[2].shape()});
  if (params_.sinks) shapes.emplace_back(query.begin(), query.end() - 2);
  return shapes;
}

bool AttentionGradient::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const AttentionGradient&>(other).params_;
}

void AttentionGradient::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  refuse_gpu(kFunction);
}

std::vector<mx::array> AttentionGradient::vjp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                              const std::vector<int>&, const std::vector<mx::array>&) {
  refuse_second_derivative();
}

std::vector<mx::array> AttentionGradient::jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                              const std::vector<int>&) {
  refuse_second_derivative();
}

std::pair<std::vector<mx::array>, std::vector<int>> AttentionGradient::vmap(
    const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  if (unpack(inputs, params_.attention).packed())
    throw NotImplemented(std::string(kPackedFunction) + ": vmap is not supported; pack all sequences");
  const int size = mapped_size(inputs, axes);
  const size_t primals = inputs.size() - kCotangents;
  // An input that is not mapped itself has a gradient for each entry all the same, so it is repeated; the
  // size of the axis may be that of a cotangent alone.
  std::vector<mx::array> first(inputs.begin(), inputs.begin() + primals);
  std::vector<int> first_axes(axes.begin(), axes.begin() + primals);
  if (first_axes[0] < 0) first[0] = mapped_or_repeated(first[0], -1, size, stream()), first_axes[0] = 0;
  std::vector<mx::array> mapped = map_inputs(first, first_axes, params_.attention, stream());
  for (size_t i = primals; i < inputs.size(); i++)
    mapped.push_back(mapped_or_repeated(inputs[i], axes[i], size, stream()));
  std::vector<mx::array> gradients = apply(mapped, params_, stream());
  return {gradients, std::vector<int>(gradients.size(), 0)};
}

}  // namespace tiny_llm_ext
