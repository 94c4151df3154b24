// A float in memory, whatever was written there. Words of weights and pairs of bfloat16 come to the products
// as `const float*`; read as a plain float, a compiler might take what it knew of the place before they were
// written.
#pragma once

namespace tiny_llm_ext::cpu {

typedef float __attribute__((may_alias)) AnyFloat;

}  // namespace tiny_llm_ext::cpu
