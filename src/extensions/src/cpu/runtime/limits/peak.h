// Peak arithmetic throughput on registers alone, which benchmarks compare with.
#pragma once

#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {

// Floating-point operations per second of `threads` threads: the best of several rounds in about `seconds`.
double measure_peak(const Kernels& kernels, Element element, int threads, double seconds);

}  // namespace tiny_llm_ext::cpu
