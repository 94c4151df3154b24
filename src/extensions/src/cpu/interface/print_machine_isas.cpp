// Prints the instruction sets of this machine, best first; kernels.cmake runs it.
#include <stdio.h>

#include "cpu/interface/machine.h"

int main() {
#define TINY_LLM_PRINT(isa) \
  if (tiny_llm_ext::cpu::machine_runs_##isa()) puts(#isa);
  TINY_LLM_ISAS(TINY_LLM_PRINT)
}
