// Exceptions that Python sees as ValueError and NotImplementedError.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace tiny_llm_ext {

// "flash_attention: key: got (2, 3), expected (B..., Hkv, S, E)". The operation is empty for a setting of the
// process.
inline std::string error_text(const std::string& operation, const std::string& argument,
                              const std::string& got, const std::string& expected) {
  return (operation.empty() ? "" : operation + ": ") + argument + ": got " + got + ", expected " + expected;
}

// A ValueError with these fields in Python.
struct ArgumentError : std::invalid_argument {
  ArgumentError(std::string operation, std::string argument, std::string got, std::string expected)
      : std::invalid_argument(error_text(operation, argument, got, expected)),
        operation(std::move(operation)),
        argument(std::move(argument)),
        got(std::move(got)),
        expected(std::move(expected)) {}

  std::string operation, argument, got, expected;
};

// A feature that does not exist (yet); NotImplementedError in Python.
struct NotImplemented : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tiny_llm_ext
