// Reports of a kernel's mistakes: each distinct text once, with a count.
#pragma once

#include <string>

namespace harness {

void clear_reports();
__attribute__((format(printf, 1, 2))) void report(const char* format, ...);
std::string all_reports();

}  // namespace harness
