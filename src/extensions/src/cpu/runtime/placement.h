// Where the pages of a large block of memory lie: in huge pages, and on which NUMA nodes.
#pragma once

#include <cstdint>
#include <vector>

namespace tiny_llm_ext::cpu {

// For a block that all threads will read, before it is written. Asks Linux for huge pages, and where the CPUs
// of this process belong to several NUMA nodes, for pages of these nodes in turn. The system may refuse
// either, which is no error. Leaves out the ends of the block, which share a huge page with other memory.
void place_block(void* begin, int64_t bytes);

// Pages of this range that are not written yet will be taken from the nodes in turn. Returns false if the
// system refuses that, or `begin` is not the beginning of a page.
bool interleave(void* begin, int64_t bytes, const std::vector<int>& nodes);

}  // namespace tiny_llm_ext::cpu
