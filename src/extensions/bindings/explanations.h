// Explanations as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include "attention/explain.h"

namespace tiny_llm_ext {

// The fields of the Python class Explanation.
nanobind::dict to_dict(const Explanation& e);

}  // namespace tiny_llm_ext
