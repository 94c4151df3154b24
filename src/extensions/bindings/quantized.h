// Products with quantized weights.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_quantized(nanobind::module_& m);

}  // namespace tiny_llm_ext
