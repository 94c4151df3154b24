// What the GPU back end of this build tells the router. One folder defines it: metal/, or no_gpu/.
#pragma once

#include <string>

#include "attention/problem.h"

namespace tiny_llm_ext::gpu {

bool exists();

// Takes the kernels from another folder than that of the package, before the first of them is needed.
void load_library(const std::string& folder);

// Its name in support.def.
const char* name();

// Whether it runs a problem that its rows in support.def cover: the device has the last word.
Verdict accepts(const Problem& problem);

// Fills the fields of an explanation that depend on the path.
void explain(const Problem& problem, Explanation& explanation);

}  // namespace tiny_llm_ext::gpu
