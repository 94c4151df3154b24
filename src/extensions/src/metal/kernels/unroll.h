// Loops over arrays must be unrolled completely, or the arrays are not kept in registers.
#pragma once

#define TINY_LLM_UNROLL _Pragma("clang loop unroll(full)")
