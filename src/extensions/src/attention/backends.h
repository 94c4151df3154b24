// What each back end implements for routing and explain().
#pragma once

#include "attention/explain.h"
#include "attention/support.h"

namespace tiny_llm_ext {

namespace cpu {

// Fills the fields of an explanation that depend on the path.
void explain(const Problem& problem, Explanation& explanation);

}  // namespace cpu

namespace gpu {

// Whether this device runs a problem that a row of support.def covers.
Verdict accepts(const Problem& problem);

// As cpu::explain.
void explain(const Problem& problem, Explanation& explanation);

}  // namespace gpu
}  // namespace tiny_llm_ext
