// Memory for weights.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_weight_memory(nanobind::module_& m);

}  // namespace tiny_llm_ext
