// What the multiply units of this machine reach on registers alone: the ceiling that benchmarks are held
// against.
#pragma once

#include "cpu/kernels/kernels.h"

namespace tiny_llm_ext::cpu {

// Floating-point operations per second over `threads` threads, the best of several rounds that take about
// `seconds` in all.
double measure_peak(const Kernels& kernels, Element element, int threads, double seconds);

}  // namespace tiny_llm_ext::cpu
