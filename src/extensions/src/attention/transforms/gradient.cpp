// The graph side of the backward kernels.
#include "attention/transforms/gradient.h"

#include "attention/inputs.h"
#include "attention/transforms/mapping.h"
#include "core/checks.h"

namespace tiny_llm_ext {
namespace {

// The sum over the axes along which `shape` broadcast.
mx::array sum_to_shape(const mx::array& x, const mx::Shape& shape, mx::Stream stream) {
  const int missing = static_cast<int>(x.ndim() - shape.size());
  std::vector<int> repeated;
  for (int axis = 0; axis < static_cast<int>(x.ndim()); axis++) {
    if (axis < missing || shape[axis - missing] != x.shape(axis)) repeated.push_back(axis);
  }
  return repeated.empty() ? x : mx::reshape(mx::sum(x, repeated, true, stream), shape, stream);
}

// Where derivatives that the fused operations lack can be had.
std::string alternative(const std::string& function) {
  const std::string reference = "use attention_reference";
  return function == kPackedFunction  ? reference + " on each sequence"
         : function == kPagedFunction ? reference + " on gathered keys and values"
                                      : reference;
}

}  // namespace

Verdict fused_gradient(const Problem& problem) {
  for (const char* pass : {"backward_dq", "backward_dkv"}) {
    if (Verdict verdict = fused_kernel(problem, pass); !verdict.ok) return verdict;
  }
  return {true, ""};
}

void refuse_forward_mode(const char* function) {
  throw NotImplemented(std::string(function) + ": jvp is not supported; " + alternative(function));
}

void refuse_second_derivative(const char* function) {
  throw NotImplemented("second derivative of " + std::string(function) + " is not supported; " +
                       alternative(function));
}

std::vector<mx::Shape> WantedGradients::shapes(const std::vector<mx::array>& inputs) const {
  const mx::Shape& q = inputs[0].shape();
  std::vector<mx::Shape> shapes;
  if (query) shapes.push_back(q);
  if (key_value) shapes.insert(shapes.end(), {inputs[1].shape(), inputs[2].shape()});
  if (sinks) shapes.emplace_back(q.begin(), q.end() - 2);
  return shapes;
}

std::vector<mx::Dtype> WantedGradients::dtypes(const std::vector<mx::array>& inputs) const {
  std::vector<mx::Dtype> dtypes;
  if (query) dtypes.push_back(inputs[0].dtype());
  if (key_value) dtypes.insert(dtypes.end(), {inputs[1].dtype(), inputs[2].dtype()});
  if (sinks) dtypes.push_back(mx::float32);
  return dtypes;
}

WantedGradients wanted_gradients(const char* function, const std::vector<int>& argnums,
                                 const std::function<std::string(int)>& name_of) {
  WantedGradients wanted;
  for (int n : argnums) {
    const std::string name = name_of(n);
    if (n > 2 && name != "sinks") {
      throw NotImplemented(std::string(function) + ": the gradient with respect to " + name +
                           " is not supported; " + alternative(function) + ", or stop_gradient on " + name);
    }
    wanted.query |= n == 0;
    wanted.key_value |= n == 1 || n == 2;
    wanted.sinks |= n > 2;
  }
  return wanted;
}

std::vector<mx::array> select_gradients(const WantedGradients& wanted, const std::vector<mx::array>& computed,
                                        const std::vector<mx::array>& primals,
                                        const std::vector<int>& argnums, mx::Stream stream) {
  const size_t first_key = wanted.query ? 1 : 0;
  std::vector<mx::array> gradients;
  for (int n : argnums) {
    if (n == 0) gradients.push_back(computed.front());
    if (n == 1 || n == 2) gradients.push_back(computed[first_key + n - 1]);
    if (n > 2) gradients.push_back(sum_to_shape(computed.back(), primals[n].shape(), stream));
  }
  return gradients;
}

std::vector<mx::array> with_cotangents(std::vector<mx::array> primals, const std::vector<mx::array>& outputs,
                                       const std::vector<mx::array>& cotangents, mx::Stream stream) {
  primals.insert(primals.end(),
                 {outputs[0], outputs[1], mx::astype(cotangents[0], outputs[0].dtype(), stream),
                  mx::astype(cotangents[1], outputs[1].dtype(), stream)});
  return primals;
}

const char* AttentionGradient::function(const std::vector<mx::array>& inputs) const {
  return function_of(unpack(inputs, params_.attention));
}

std::pair<std::vector<mx::array>, std::vector<int>> AttentionGradient::vmap(
    const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
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
  std::vector<mx::array> gradients = gradients_of<AttentionGradient>(mapped, params_, stream());
  return {gradients, std::vector<int>(gradients.size(), 0)};
}

}  // namespace tiny_llm_ext
