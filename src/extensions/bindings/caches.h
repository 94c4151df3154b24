// Attention to caches, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_cached_attention(nanobind::module_& m);

}  // namespace tiny_llm_ext
