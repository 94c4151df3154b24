// The gradient and vmap of the primitive.
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "attention/transforms/gradient.h"
#include "attention/transforms/mapping.h"
#include "core/checks.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext {
namespace {

// The identity, without derivatives. It wraps the gradient of the reference graph, so that a second
// derivative is an error as it is with backward kernels. Only for rectangles: packed sequences have those
// kernels wherever they have a forward kernel.
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
    refuse_second_derivative(kFunction);
  }
  std::vector<mx::array> jvp(const std::vector<mx::array>&, const std::vector<mx::array>&,
                             const std::vector<int>&) override {
    refuse_second_derivative(kFunction);
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
  LastRun run_;
};

}  // namespace

std::vector<mx::array> Attention::vjp(const std::vector<mx::array>& primals,
                                      const std::vector<mx::array>& cotangents,
                                      const std::vector<int>& argnums,
                                      const std::vector<mx::array>& outputs) {
  const AttentionInputs inputs = unpack(primals, params_);
  const auto name_of = [&](int n) { return input_name(n, params_); };
  const GradientParams params = {wanted_gradients(function_of(inputs), argnums, name_of), params_};
  const Problem problem = make_problem(inputs, params_, stream().device);
  if (!fused_gradient(problem).ok) return reference_vjp(primals, cotangents, argnums, problem);
  const auto computed = gradients_of<AttentionGradient>(
      with_cotangents(primals, outputs, cotangents, stream()), params, stream());
  return select_gradients(params, computed, primals, argnums, stream());
}

std::vector<mx::array> Attention::reference_vjp(const std::vector<mx::array>& primals,
                                                const std::vector<mx::array>& cotangents,
                                                const std::vector<int>& argnums, const Problem& problem) {
  std::vector<mx::array> wanted;
  for (int n : argnums) wanted.push_back(primals[n]);
  auto reference = [&](const std::vector<mx::array>& variables) {
    std::vector<mx::array> arrays = primals;
    for (size_t i = 0; i < argnums.size(); i++) arrays[argnums[i]] = variables[i];
    const AttentionInputs inputs = unpack(arrays, params_);
    auto [o, lse] = reference_graph(function_of(inputs), inputs, params_, stream());
    return std::vector<mx::array>{o, lse};
  };
  return FirstDerivative::apply(mx::vjp(reference, wanted, cotangents).second, stream(),
                                graph_run(kReferencePath, problem));
}

std::vector<mx::array> Attention::jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>&,
                                      const std::vector<int>&) {
  refuse_forward_mode(function_of(unpack(primals, params_)));
}

std::pair<std::vector<mx::array>, std::vector<int>> Attention::vmap(const std::vector<mx::array>& inputs,
                                                                    const std::vector<int>& axes) {
  const std::vector<mx::array> mapped = map_inputs(inputs, axes, params_, stream());
  auto shapes = output_shapes(mapped);
  auto outputs = mx::array::make_arrays(shapes, {mapped[0].dtype(), mx::float32},
                                        std::make_shared<Attention>(stream(), params_), mapped);
  return {outputs, {0, 0}};
}

}  // namespace tiny_llm_ext
