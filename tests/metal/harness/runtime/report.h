// What is wrong with a kernel: each different sentence once, with the number of times.
#pragma once

#include <string>

namespace harness {

void clear_reports();
__attribute__((format(printf, 1, 2))) void report(const char* format, ...);
std::string all_reports();

}  // namespace harness
