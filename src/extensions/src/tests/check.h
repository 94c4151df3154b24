// A minimal test framework: counted checks, the text of failures, a summary and the exit code.
#pragma once

#include <cstdio>
#include <string>

namespace tiny_llm_ext::tests {

constexpr int kSkipped = 77;  // exit code of a test that this machine cannot run

inline int passed = 0, failed = 0;

inline bool check(bool ok, const std::string& what) {
  ok ? ++passed : ++failed;
  if (!ok && failed <= 20) std::printf("FAILED %s\n", what.c_str());
  return ok;
}

// Checks that `action` throws an Exception whose text is `expected`.
template <class Exception, class Action>
void check_throws(const std::string& expected, Action action) {
  try {
    action();
    check(false, "no exception, expected: " + expected);
  } catch (const Exception& error) {
    check(error.what() == expected, std::string("got '") + error.what() + "', expected '" + expected + "'");
  }
}

inline int finish(const std::string& name) {
  std::printf("%s: %d passed, %d failed\n", name.c_str(), passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace tiny_llm_ext::tests
