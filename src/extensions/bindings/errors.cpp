// ArgumentError as a ValueError with the same fields, NotImplemented as NotImplementedError.
#include "bindings/errors.h"

#include <nanobind/stl/string.h>

#include <typeinfo>

#include "core/checks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {
namespace {

// The class to raise, set by the Python package; null: ValueError. Never released, because errors are raised
// until the interpreter ends.
PyObject* argument_error = nullptr;

void use_argument_error(nb::object cls) {
  if (!PyType_Check(cls.ptr()) || !PyObject_IsSubclass(cls.ptr(), PyExc_ValueError))
    reject("_set_argument_error", "cls", nb::repr(cls).c_str(), "a class of ValueErrors");
  Py_XDECREF(std::exchange(argument_error, cls.release().ptr()));
}

nb::object as_python(const ArgumentError& e) {
  if (argument_error) return nb::handle(argument_error)(e.operation, e.argument, e.got, e.expected);
  nb::object error = nb::handle(PyExc_ValueError)(e.what());
  error.attr("operation") = e.operation;
  error.attr("argument") = e.argument;
  error.attr("got") = e.got;
  error.attr("expected") = e.expected;
  return error;
}

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const ArgumentError& e) {
    // nanobind calls the translators of all modules, also those of another copy of this one, for which
    // another class or none is set. Each copy has its own type_info object, though they compare equal.
    if (&typeid(e) != &typeid(ArgumentError)) throw;
    try {
      const nb::object raised = as_python(e);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    } catch (nb::python_error& other) {
      other.restore();
    }
  } catch (const NotImplemented& e) {
    PyErr_SetString(PyExc_NotImplementedError, e.what());
  }
}

}  // namespace

void define_errors(nb::module_& m) {
  nb::register_exception_translator(translate);
  m.def("_set_argument_error", &use_argument_error, "cls"_a,
        "Raise wrong arguments as cls(operation, argument, got, expected), a ValueError.");
}

}  // namespace tiny_llm_ext
