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
const Kernels& active_kernels();

}  // namespace tiny_llm_ext::cpu
