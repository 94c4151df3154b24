// The gradient of attention over pages.
#pragma once

#include <vector>

#include "attention/transforms/gradient.h"

namespace tiny_llm_ext {

struct PagedGradientParams : WantedGradients {
  PagedParams attention;

  bool operator==(const PagedGradientParams&) const = default;
};

// Inputs: those of PagedAttention, then Cotangents. Outputs: the wanted gradients; those of the pages are
// pages, with the sums over all sequences.
class PagedAttentionGradient : public mx::Primitive {
 public:
  PagedAttentionGradient(mx::Stream stream, PagedGradientParams params)
      : mx::Primitive(stream), params_(params) {}

  static std::vector<mx::array> apply(const std::vector<mx::array>& inputs, const PagedGradientParams& params,
                                      mx::Stream stream);

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  const char* name() const override { return "tiny_llm_ext::PagedAttentionGradient"; }
  bool is_equivalent(const mx::Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  PagedGradientParams params_;
};

}  // namespace tiny_llm_ext
