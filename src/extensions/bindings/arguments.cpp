// Conversions that a type signature alone does not express.
#include "arguments.h"

#include "attention/checks.h"

namespace nb = nanobind;

namespace tiny_llm_ext {
namespace {

std::string text(nb::handle object) { return nb::repr(object).c_str(); }

bool is_integer(nb::handle object) { return PyIndex_Check(object.ptr()) && !PyBool_Check(object.ptr()); }

// Numbers that do not fit are clipped; every range check refuses them or takes them as unlimited.
int64_t integer(nb::handle object) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
}

bool is_list(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

// Collects the numbers of nested sequences and their shape; false if they are ragged or not numbers.
bool flatten(nb::handle object, size_t depth, mx::Shape& shape, std::vector<int64_t>& numbers) {
  if (!is_list(object)) {
    if (!is_integer(object) || depth != shape.size()) return false;
    numbers.push_back(integer(object));
    return true;
  }
  int length = static_cast<int>(nb::len(object));
  if (depth == shape.size()) {
    if (!numbers.empty()) return false;
    shape.push_back(length);
  }
  if (shape[depth] != length) return false;
  for (nb::handle element : object) {
    if (!flatten(element, depth + 1, shape, numbers)) return false;
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
  if (is_integer(object)) return integer(object);
  if (is_list(object) && nb::len(object) == 2 && is_integer(object[0]) && is_integer(object[1])) {
    return std::pair{integer(object[0]), integer(object[1])};
  }
  reject(function, "window", text(object), "a number of keys >= 1, or (left, right) with -1 for no limit");
}

std::optional<Lengths> lengths_from(const char* function, const char* argument, nb::handle object) {
  if (object.is_none()) return {};
  if (nb::isinstance<mx::array>(object)) return Lengths{nb::cast<mx::array>(object), false};
  nb::object numbers = nb::borrow(object);
  if (!is_list(object) && nb::hasattr(object, "tolist")) numbers = object.attr("tolist")();
  mx::Shape shape;
  std::vector<int64_t> flat;
  if (!flatten(numbers, 0, shape, flat)) {
    reject(function, argument, text(object),
           "an array of int32 or int64, or integers nested in the batch shape");
  }
  return Lengths{mx::array(flat.begin(), shape, mx::int64), true};
}

void warn(const std::string& text) {
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 2) < 0) throw nb::python_error();
}

}  // namespace tiny_llm_ext
