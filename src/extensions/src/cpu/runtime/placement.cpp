// Advice to Linux about the pages of a block.
#include "cpu/runtime/placement.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/divide_up.h"
#include "cpu/interface/cpus.h"

namespace tiny_llm_ext::cpu {
namespace {

#if defined(__linux__)
// Whether the user chose where memory lies, such as with `numactl`, or the system does not say:
// containers of Docker forbid to ask.
bool has_policy() {
  int mode = 0;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) != 0 || mode != 0;
}
#endif

}  // namespace

bool interleave([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes,
                [[maybe_unused]] const std::vector<int>& nodes) {
#if defined(__linux__)
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of linux/mempolicy.h, which not every system has
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask;
  for (int node : nodes) {
    if (mask.size() <= static_cast<size_t>(node / kBits)) mask.resize(node / kBits + 1);
    mask[node / kBits] |= 1UL << node % kBits;
  }
  // Linux reads one bit less than it is told.
  return syscall(SYS_mbind, begin, bytes, kInterleave, mask.data(), mask.size() * kBits + 1, 0) == 0;
#else
  return false;
#endif
}

void place_block([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  constexpr int64_t kHugePage = 2 << 20;
  const auto address = reinterpret_cast<int64_t>(begin);
  const int64_t first = round_up(address, kHugePage), last = (address + bytes) / kHugePage * kHugePage;
  if (first >= last) return;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  // First touch by the threads that read a part would not place it: they are not bound to CPUs, they take
  // over each other's work, and a matrix of a small model is a single huge page.
  static const std::vector<int> nodes = memory_nodes(affinity(), "");
  if (nodes.size() > 1 && !has_policy()) interleave(reinterpret_cast<void*>(first), last - first, nodes);
#endif
}

}  // namespace tiny_llm_ext::cpu
