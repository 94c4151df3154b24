// A loop over an array must vanish, or the array does not stay in registers.
#pragma once

#define TINY_LLM_UNROLL _Pragma("clang loop unroll(full)")
