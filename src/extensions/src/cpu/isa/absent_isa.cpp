// Replaces isa_<name>.cpp in a build without that instruction set: a table without kernels.
#include "cpu/interface/kernels.h"

#define TINY_LLM_JOIN(isa, suffix) isa##suffix
#define TINY_LLM_GETTER(isa) TINY_LLM_JOIN(isa, _kernels)

namespace tiny_llm_ext::cpu {

const Kernels& TINY_LLM_GETTER(TINY_LLM_ISA)() {
  static const Kernels none = {};
  return none;
}

}  // namespace tiny_llm_ext::cpu
