#include "constants.h"

#include <link.h>

#include <algorithm>
#include <vector>

// Generated from the kernel's signature; the last one has the index -1.
struct Constant {
  int index;
  int* value;
};
extern "C" const Constant harness_constants[];

namespace harness {
namespace {

struct Range {
  uintptr_t begin, end;

  bool holds(uintptr_t address, uint64_t bytes) const { return address >= begin && address + bytes <= end; }
};

// Finds the read-only segments of the library that contains this function and the kernel.
int add_own_segments(dl_phdr_info* library, size_t, void* ranges) {
  auto here = reinterpret_cast<uintptr_t>(&add_own_segments);
  std::vector<Range> found;
  bool is_own = false;
  for (int i = 0; i < library->dlpi_phnum; i++) {
    const ElfW(Phdr) & header = library->dlpi_phdr[i];
    const Range segment{library->dlpi_addr + header.p_vaddr,
                        library->dlpi_addr + header.p_vaddr + header.p_memsz};
    is_own |= header.p_type == PT_LOAD && segment.holds(here, 1);
    const bool is_read_only = header.p_type == PT_LOAD && !(header.p_flags & PF_W);
    if (is_read_only || header.p_type == PT_GNU_RELRO) found.push_back(segment);
  }
  if (is_own) *static_cast<std::vector<Range>*>(ranges) = found;
  return is_own;
}

std::vector<Range> own_constants() {
  std::vector<Range> ranges;
  dl_iterate_phdr(add_own_segments, &ranges);
  for (const Constant* constant = harness_constants; constant->index != -1; constant++) {
    auto begin = reinterpret_cast<uintptr_t>(constant->value);
    ranges.push_back({begin, begin + sizeof *constant->value});
  }
  return ranges;
}

}  // namespace

bool is_constant(const void* address, uint64_t bytes) {
  static const std::vector<Range> ranges = own_constants();
  return std::any_of(ranges.begin(), ranges.end(), [=](const Range& range) {
    return range.holds(reinterpret_cast<uintptr_t>(address), bytes);
  });
}

}  // namespace harness
