// What the calls of the thread pool cost, while somebody measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tiny_llm_ext::cpu {

// A call of parallel_for or parallel_ranges, or a whole operation with all that is between its regions, which
// has no items. Times in nanoseconds, of one steady clock.
struct Region {
  std::string operation;
  int64_t items = 0;
  int threads = 1;  // that were offered items, with the caller
  int64_t begin = 0, end = 0;
  int64_t busy = 0, longest = 0;  // time within items: of all threads, and of the busiest
};

// Names the regions of this thread during its lifetime, and is kept itself. Does nothing within another one.
class Operation {
 public:
  explicit Operation(const char* name);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  const bool outermost_;
  int64_t begin_ = 0;
};

// From now on regions are kept, of all threads; what an earlier log has is dropped.
void start_region_log();
// Ends the log; its regions in the order of their ends.
std::vector<Region> end_region_log();

bool keeps_regions();
void keep_region(Region region);  // its operation is that of this thread
int64_t nanoseconds_now();

}  // namespace tiny_llm_ext::cpu
