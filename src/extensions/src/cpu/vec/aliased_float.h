// A float in memory that may have been written as another type: packed words and pairs of bfloat16 are read
// through `const float*`. Through a plain float, a compiler could use an older value of that memory.
#pragma once

namespace tiny_llm_ext::cpu {

typedef float __attribute__((may_alias)) AliasedFloat;

}  // namespace tiny_llm_ext::cpu
