// From C++ exceptions to Python's.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_errors(nanobind::module_& m);

}  // namespace tiny_llm_ext
