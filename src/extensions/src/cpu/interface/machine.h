// The instruction sets of this architecture, and which of them this machine runs.
//
// kernels.cmake compiles this first of all, so it includes neither the kernels nor the STL.
#pragma once

// Best first. kernels.cmake lists the same names with the flags they are compiled with.
#if defined(__x86_64__)
#define TINY_LLM_ISAS(apply) apply(amx) apply(avx512bf16) apply(avx512) apply(avx2) apply(scalar)
#elif defined(__aarch64__)
#define TINY_LLM_ISAS(apply) apply(neon) apply(scalar)
#else
#define TINY_LLM_ISAS(apply) apply(scalar)
#endif

namespace tiny_llm_ext::cpu {

#define TINY_LLM_DECLARE(isa) bool machine_runs_##isa();
TINY_LLM_ISAS(TINY_LLM_DECLARE)
#undef TINY_LLM_DECLARE

#if defined(__x86_64__)
// Whether vector products of bfloat16 are faster than those of float32.
bool machine_has_fast_bf16_products();
#endif

}  // namespace tiny_llm_ext::cpu
