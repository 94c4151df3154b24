// From Python objects to the options of the C++ interface.
#pragma once

#include <nanobind/nanobind.h>

#include "rows/row_operations.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

// Each throws an ArgumentError naming `function` for an object of the wrong kind.
decltype(AttentionOptions::mask) mask_from(const char* function, nanobind::handle object);
decltype(AttentionOptions::window) window_from(const char* function, nanobind::handle object);

// The options of all attention functions, without the lengths. `deterministic` needs none: every path is.
AttentionOptions options_from(const char* function, std::optional<double> scale, nanobind::handle mask,
                              bool causal, nanobind::handle window, std::optional<double> softcap,
                              std::optional<mx::array> sinks, bool batch_invariant, std::string schedule,
                              std::string on_fallback, std::optional<std::string> isa,
                              std::optional<int> threads, bool return_lse, bool own_kernels,
                              mx::StreamOrDevice stream);

// An array, or numbers: an int or sequences of them, nested at most `rank` deep.
std::optional<mx::array> lengths_from(const char* function, const char* argument, nanobind::handle object,
                                      size_t rank);

// An array, an int, or a sequence of ints.
Offsets offsets_from(const char* function, nanobind::handle object);

// Raises a UserWarning at the caller of the function that called into the extension.
void warn(const std::string& text);

// The module may be imported under two names, from the source tree and from its folder, with the same types.
// If T is registered already, adds it to this module, too, and returns true.
template <class T>
bool adopt_type(nanobind::module_& m, const char* name) {
  const nanobind::handle known = nanobind::type<T>();
  if (known) m.attr(name) = known;
  return known.is_valid();
}

}  // namespace tiny_llm_ext
