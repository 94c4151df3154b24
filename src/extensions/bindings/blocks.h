// A block of a decoder, and the steps of a packed batch, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tiny_llm_ext {

void define_decoder_block(nanobind::module_& m);
void define_packed_step(nanobind::module_& m);

}  // namespace tiny_llm_ext
