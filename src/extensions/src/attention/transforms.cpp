// The gradient and vmap of the primitive.
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "core/checks.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext {
namespace {

// The identity, without derivatives. It wraps the gradient of fused attention, so that a second derivative is
// an error: a backward kernel will not have one.
class FirstDerivative : public mx::Primitive {
 public:
  FirstDerivative(mx::Stream stream, LastRun run) : mx::Primitive(stream), run_(std::move(run)) {}

  // Recorded in stream order, after the fused forward pass.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (size_t i = 0; i < inputs.size(); i++) outputs[i].copy_shared_buffer(inputs[i]);
    cpu::enqueue(stream(), [run = run_] { record_run(run); });
  }
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (size_t i = 0; i < inputs.size(); i++) outputs[i].copy_shared_buffer(inputs[i]);
    record_run(run_);
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                             const std::vector<int>&, const std::vector<mx::array>&) override {
    refuse();
  }
  std::vector<mx::array> jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                             const std::vector<int>&) override {
    refuse();
  }
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override {
    return {apply(inputs, stream(), run_), axes};
  }

  static std::vector<mx::array> apply(const std::vector<mx::array>& inputs, mx::Stream stream,
                                      const LastRun& run) {
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (const mx::array& input : inputs) {
      shapes.push_back(input.shape());
      dtypes.push_back(input.dtype());
    }
    return mx::array::make_arrays(shapes, dtypes, std::make_shared<FirstDerivative>(stream, run), inputs);
  }

  const char* name() const override { return "tiny_llm_ext::FirstDerivative"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    std::vector<mx::Shape> shapes;
    for (const mx::array& input : inputs) shapes.push_back(input.shape());
    return shapes;
  }

 private:
  [[noreturn]] static void refuse() {
    throw NotImplemented("second derivative of flash_attention is not supported; use attention_reference");
  }

  LastRun run_;
};

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

std::vector<mx::array> Attention::vjp(const std::vector<mx::array>& primals,
                                      const std::vector<mx::array>& cotangents,
                                      const std::vector<int>& argnums, const std::vector<mx::array>&) {
  std::vector<mx::array> wanted;
  for (int n : argnums) {
    std::string name = input_name(n, params_);
    if (name != "query" && name != "key" && name != "value" && name != "sinks") {
      throw NotImplemented("flash_attention: the gradient with respect to " + name +
                           " is not supported; use attention_reference, or stop_gradient on " + name);
    }
    wanted.push_back(primals[n]);
  }
  auto reference = [&](const std::vector<mx::array>& variables) {
    std::vector<mx::array> arrays = primals;
    for (size_t i = 0; i < argnums.size(); i++) arrays[argnums[i]] = variables[i];
    const AttentionInputs inputs = unpack(arrays, params_);
    auto [o, lse] = reference_graph(function_of(inputs), inputs, params_, stream());
    return std::vector<mx::array>{o, lse};
  };
  LastRun run = graph_run(kReferencePath, make_problem(unpack(primals, params_), params_, stream().device));
  return FirstDerivative::apply(mx::vjp(reference, wanted, cotangents).second, stream(), run);
}

std::vector<mx::array> Attention::jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                                      const std::vector<int>&) {
  throw NotImplemented("flash_attention: jvp is not supported; use attention_reference");
}

std::pair<std::vector<mx::array>, std::vector<int>> Attention::vmap(const std::vector<mx::array>& inputs,
                                                                    const std::vector<int>& axes) {
  if (unpack(inputs, params_).packed())
    throw NotImplemented(std::string(kPackedFunction) + ": vmap is not supported; pack all sequences");
  int size = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axes[i] >= 0) size = inputs[i].shape(axes[i]);
  }
  std::vector<mx::array> mapped;
  for (int i = 0; i < 3; i++) {
    if (axes[i] >= 0) {
      mapped.push_back(mx::moveaxis(inputs[i], axes[i], 0, stream()));
    } else {
      mx::Shape shape = inputs[i].shape();
      shape.insert(shape.begin(), size);
      mapped.push_back(mx::broadcast_to(inputs[i], shape, stream()));
    }
  }
  int batch_axes = static_cast<int>(mapped[0].ndim()) - 3;
  int next = 3;
  for (size_t i = 0; i < kOptionalInputs.size(); i++) {
    if (!params_.present[i]) continue;
    int rank = batch_axes + kOptionalInputs[i].trailing_axes;
    mapped.push_back(axes[next] >= 0 ? mapped_axis_first(inputs[next], axes[next], rank, stream())
                                     : inputs[next]);
    next++;
  }
  auto shapes = output_shapes(mapped);
  auto outputs = mx::array::make_arrays(shapes, {mapped[0].dtype(), mx::float32},
                                        std::make_shared<Attention>(stream(), params_), mapped);
  return {outputs, {0, 0}};
}

}  // namespace tiny_llm_ext
