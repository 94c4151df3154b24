// The instruction sets that this build and this machine have, and the one in use.
#pragma once

#include <string>
#include <vector>

#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {

// Names of the usable instruction sets, best first. "scalar" is always the last.
const std::vector<std::string>& available_isas();

// The kernels of that name. Throws an ArgumentError for an unknown name or one this machine lacks.
const Kernels& kernels_named(const std::string& name, const std::string& operation = "",
                             const std::string& argument = "isa");

// The kernels in use: those named by TINY_LLM_CPU_ISA, else the best. The variable is read at the first call.
// Where `set_batch_invariant(true)` holds, the batch-invariant ones of that instruction set.
const Kernels& active_kernels();

// Whether operations that this thread makes from now on are batch invariant: the bits of a row do not depend
// on the number of rows beside it. Returns what held before.
bool set_batch_invariant(bool on);

}  // namespace tiny_llm_ext::cpu
