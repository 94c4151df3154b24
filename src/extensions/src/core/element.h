// The element types of arrays. Kernel files include this: neither STL nor MLX.
#pragma once

namespace tiny_llm_ext {

enum class Element : int { f32, f16, bf16 };  // indexes the arrays of cpu::Kernels
constexpr int kElements = 3;

constexpr int size_of(Element element) { return element == Element::f32 ? 4 : 2; }  // in bytes

}  // namespace tiny_llm_ext
