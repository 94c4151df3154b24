// Attention to pages, and the operation that stores keys and values in them.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_pages(nanobind::module_& m);

}  // namespace tiny_llm_ext
