// A block of a decoder, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_decoder_block(nanobind::module_& m);

}  // namespace tiny_llm_ext
