// TINY_LLM_THREADS and its default.
#include "cpu/interface/threads.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "core/errors.h"
#include "cpu/interface/cpus.h"

namespace tiny_llm_ext::cpu {
namespace {

int threads_from_environment() {
  const char* given = std::getenv("TINY_LLM_THREADS");
  if (!given) return allowed_cpus();
  const std::string text = given;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1) {
    throw ArgumentError("", "TINY_LLM_THREADS", "'" + text + "'", "a positive integer");
  }
  return threads;
}

}  // namespace

int default_threads() {
  static const int threads = threads_from_environment();
  return threads;
}

}  // namespace tiny_llm_ext::cpu
