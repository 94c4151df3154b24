// The gradient of fused attention, where kernels compute it: a primitive without derivatives of its own.
#pragma once

#include <string>
#include <vector>

#include "attention/support.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

struct GradientParams {
  AttentionParams attention;
  bool query, key_value, sinks;  // which gradients are wanted

  bool operator==(const GradientParams&) const = default;
};

// The inputs of AttentionGradient after those of Attention, whose outputs are o and lse.
struct Cotangents {
  mx::array o, lse, d_o, d_lse;
};

// Inputs: those of Attention, then Cotangents. Outputs, as far as wanted: dQ, dK, dV and dsinks, which is
// (B..., Hq) in float32; the others have the shape and dtype of their input.
class AttentionGradient : public mx::Primitive {
 public:
  AttentionGradient(mx::Stream stream, GradientParams params) : mx::Primitive(stream), params_(params) {}

  static std::vector<mx::array> apply(const std::vector<mx::array>& inputs, const GradientParams& params,
                                      mx::Stream stream);

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::AttentionGradient"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  GradientParams params_;
};

// Whether kernels compute the gradient of a problem.
Verdict fused_gradient(const Problem& problem);

[[noreturn]] void refuse_second_derivative();

// The inputs of Attention with their mapped axes as the first batch axis.
std::vector<mx::array> map_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                  const AttentionParams& params, mx::Stream stream);

}  // namespace tiny_llm_ext
