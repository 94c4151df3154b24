// The gradient of attention over pages.
#pragma once

#include <vector>

#include "attention/transforms/gradient.h"

namespace tiny_llm_ext {

using PagedGradientParams = GradientParamsOf<PagedParams>;

// The gradients of the pages are pages, with the sums over all sequences.
class PagedAttentionGradient : public GradientPrimitive<PagedGradientParams> {
 public:
  using GradientPrimitive::GradientPrimitive;

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;
  const char* name() const override { return "tiny_llm_ext::PagedAttentionGradient"; }

 private:
  const char* function(const std::vector<mx::array>&) const override { return kPagedFunction; }
};

}  // namespace tiny_llm_ext
