// The types in which arrays hold their numbers.
#pragma once

namespace tiny_llm_ext::cpu {

enum class Element : int { f32, f16, bf16 };  // indexes the arrays of Kernels
constexpr int kElements = 3;

}  // namespace tiny_llm_ext::cpu
