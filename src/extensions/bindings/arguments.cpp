// Conversions of arguments that type signatures cannot express.
#include "arguments.h"

#include <algorithm>

#include "core/checks.h"

namespace nb = nanobind;

namespace tiny_llm_ext {
namespace {

// repr(object) on one line; a long one is cut and followed by the type.
std::string text(nb::handle object) {
  constexpr size_t kLongest = 80;
  std::string shown = nb::repr(object).c_str();
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  if (shown.size() <= kLongest) return shown;
  size_t end = kLongest;
  while ((shown[end] & 0xc0) == 0x80) end--;  // not within a character
  return shown.substr(0, end) + "... of type " + nb::str(object.type().attr("__name__")).c_str();
}

// None if the object is no integer: an array of several elements has __index__, which raises. Integers that
// do not fit are clipped; range checks refuse them or take them as unlimited.
std::optional<int64_t> integer(nb::handle object) {
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr())) return {};
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    return {};
  }
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
}

bool is_list(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

// Collects the numbers of nested sequences and their shape; false if they are ragged, not numbers, or nested
// more than `max_depth` deep (a list may contain itself).
bool flatten(nb::handle object, size_t max_depth, size_t depth, mx::Shape& shape,
             std::vector<int64_t>& numbers) {
  if (!is_list(object)) {
    std::optional<int64_t> number = integer(object);
    if (!number || depth != shape.size()) return false;
    numbers.push_back(*number);
    return true;
  }
  if (depth == max_depth) return false;
  int length = static_cast<int>(nb::len(object));
  if (depth == shape.size()) {
    if (!numbers.empty()) return false;
    shape.push_back(length);
  }
  if (shape[depth] != length) return false;
  for (nb::handle element : object) {
    if (!flatten(element, max_depth, depth + 1, shape, numbers)) return false;
  }
  return true;
}

}  // namespace

decltype(AttentionOptions::mask) mask_from(const char* function, nb::handle object) {
  if (object.is_none()) return {};
  if (nb::isinstance<nb::str>(object)) return nb::borrow<nb::str>(object).c_str();
  if (nb::isinstance<mx::array>(object)) return nb::cast<mx::array>(object);
  reject(function, "mask", text(object), "None, 'causal' or an array");
}

decltype(AttentionOptions::window) window_from(const char* function, nb::handle object) {
  if (object.is_none()) return {};
  if (std::optional<int64_t> keys = integer(object)) return *keys;
  if (is_list(object) && nb::len(object) == 2) {
    std::optional<int64_t> left = integer(object[0]), right = integer(object[1]);
    if (left && right) return std::pair{*left, *right};
  }
  reject(function, "window", text(object), "a number of keys >= 1, or (left, right) with -1 for no limit");
}

AttentionOptions options_from(const char* function, std::optional<double> scale, nb::handle mask, bool causal,
                              nb::handle window, std::optional<double> softcap,
                              std::optional<mx::array> sinks, bool batch_invariant, std::string schedule,
                              std::string on_fallback, std::optional<std::string> isa,
                              std::optional<int> threads, bool return_lse, bool own_kernels,
                              mx::StreamOrDevice stream) {
  AttentionOptions options;
  options.scale = scale;
  options.mask = mask_from(function, mask);
  options.causal = causal;
  options.window = window_from(function, window);
  options.softcap = softcap;
  options.sinks = std::move(sinks);
  options.batch_invariant = batch_invariant;
  options.schedule = std::move(schedule);
  options.on_fallback = std::move(on_fallback);
  options.warn = warn;
  options.isa = std::move(isa);
  options.threads = threads;
  options.return_lse = return_lse;
  options.own_kernels = own_kernels;
  options.stream = stream;
  return options;
}

std::optional<mx::array> lengths_from(const char* function, const char* argument, nb::handle object,
                                      size_t rank) {
  if (object.is_none()) return {};
  if (nb::isinstance<mx::array>(object)) return nb::cast<mx::array>(object);
  nb::object numbers = nb::borrow(object);
  if (!is_list(object) && nb::hasattr(object, "tolist")) numbers = object.attr("tolist")();
  mx::Shape shape;
  std::vector<int64_t> flat;
  if (!flatten(numbers, rank, 0, shape, flat)) {
    reject(function, argument, text(object),
           "an array of int32 or int64, or integers nested in the batch shape");
  }
  return mx::array(flat.begin(), shape, mx::int64);
}

Offsets offsets_from(const char* function, nb::handle object) {
  if (nb::isinstance<mx::array>(object)) return nb::cast<mx::array>(object);
  if (std::optional<int64_t> number = integer(object)) return *number;
  mx::Shape shape;
  std::vector<int64_t> numbers;
  if (!is_list(object) || !flatten(object, 1, 0, shape, numbers))
    reject(function, "offset", text(object), "an integer, one for each row, or an array of int32 or int64");
  return numbers;
}

void warn(const std::string& text) {
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 2) < 0) throw nb::python_error();
}

}  // namespace tiny_llm_ext
