// The gradient of fused attention, where kernels compute it: primitives without derivatives of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/support.h"
#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Which gradients are wanted, and so the outputs of a gradient's primitive: dQ, dK with dV, and dsinks, which
// is (B..., Hq) in float32; the others have the shape and dtype of their input.
struct WantedGradients {
  bool query = false, key_value = false, sinks = false;

  bool operator==(const WantedGradients&) const = default;

  // Of inputs that begin with query, key and value.
  std::vector<mx::Shape> shapes(const std::vector<mx::array>& inputs) const;
  std::vector<mx::Dtype> dtypes(const std::vector<mx::array>& inputs) const;
};

// The gradients that mx.vjp asks for; `name_of` names the inputs. Throws for an input without a gradient.
WantedGradients wanted_gradients(const char* function, const std::vector<int>& argnums,
                                 const std::function<std::string(int)>& name_of);

// The outputs of a gradient's primitive in the order of `argnums`, each in the shape of its input.
std::vector<mx::array> select_gradients(const WantedGradients& wanted, const std::vector<mx::array>& computed,
                                        const std::vector<mx::array>& primals,
                                        const std::vector<int>& argnums, mx::Stream stream);

// The inputs of a gradient's primitive after those of Attention, whose outputs are o and lse.
struct Cotangents {
  mx::array o, lse, d_o, d_lse;
};
inline constexpr size_t kCotangents = 4;

// The primals, then Cotangents.
std::vector<mx::array> with_cotangents(std::vector<mx::array> primals, const std::vector<mx::array>& outputs,
                                       const std::vector<mx::array>& cotangents, mx::Stream stream);

[[noreturn]] void refuse_forward_mode(const char* function);
[[noreturn]] void refuse_second_derivative(const char* function);

// `Attention` has the parameters of the operation.
template <class Attention>
struct GradientParamsOf : WantedGradients {
  Attention attention;

  bool operator==(const GradientParamsOf&) const = default;
};

// The primitive of a gradient, which has no derivatives of its own. Inputs: those of the operation, then
// Cotangents. Outputs: the wanted gradients.
template <class Params>
class GradientPrimitive : public mx::Primitive {
 public:
  GradientPrimitive(mx::Stream stream, Params params) : mx::Primitive(stream), params_(std::move(params)) {}

  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>&) override {
    refuse_gpu(function(inputs));
  }
  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>&,
                             const std::vector<int>&, const std::vector<mx::array>&) override {
    refuse_second_derivative(function(primals));
  }
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>&,
                             const std::vector<int>&) override {
    refuse_second_derivative(function(primals));
  }
  bool is_equivalent(const mx::Primitive& other) const override {
    return params_ == static_cast<const GradientPrimitive&>(other).params_;
  }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return params_.shapes(inputs);
  }

 protected:
  // The operation, as errors name it.
  virtual const char* function(const std::vector<mx::array>& inputs) const = 0;

  Params params_;
};

// The outputs of the primitive `Gradient`.
template <class Gradient, class Params>
std::vector<mx::array> gradients_of(const std::vector<mx::array>& inputs, const Params& params,
                                    mx::Stream stream) {
  return mx::array::make_arrays(params.shapes(inputs), params.dtypes(inputs),
                                std::make_shared<Gradient>(stream, params), inputs);
}

using GradientParams = GradientParamsOf<AttentionParams>;

class AttentionGradient : public GradientPrimitive<GradientParams> {
 public:
  using GradientPrimitive::GradientPrimitive;

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  const char* name() const override { return "tiny_llm_ext::AttentionGradient"; }

 private:
  const char* function(const std::vector<mx::array>& inputs) const override;
};

// Whether kernels compute the gradient of a problem.
Verdict fused_gradient(const Problem& problem);

}  // namespace tiny_llm_ext
