#include "report.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <map>

namespace harness {
namespace {

std::map<std::string, uint64_t> counts;

}  // namespace

void clear_reports() { counts.clear(); }

void report(const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  counts[text]++;
}

std::string all_reports() {
  std::string text;
  for (const auto& [sentence, count] : counts) text += std::to_string(count) + " x " + sentence + "\n";
  return text;
}

}  // namespace harness
