// The row operations.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_row_operations(nanobind::module_& m);

}  // namespace tiny_llm_ext
