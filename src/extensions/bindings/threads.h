// What the threads of the CPU kernels cost, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_threads(nanobind::module_& m);

}  // namespace tiny_llm_ext
