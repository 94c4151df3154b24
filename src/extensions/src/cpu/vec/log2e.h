// e^x is 2^(x * log2 e): kernels have exp2 only.
#pragma once

namespace tiny_llm_ext::cpu {

constexpr float kLog2e = 1.44269504088896341f;

}  // namespace tiny_llm_ext::cpu
