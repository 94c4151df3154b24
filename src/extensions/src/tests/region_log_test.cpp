// The log of parallel regions: names, nested calls, exceptions, several callers.
#include "cpu/runtime/region_log.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::tests {
namespace {

using cpu::parallel_for;
using cpu::Region;

constexpr int kThreads = 3;

// The operations of a log; of a whole operation with "=" before its name.
std::vector<std::string> names(const std::vector<Region>& log) {
  std::vector<std::string> found;
  for (const Region& region : log) found.push_back((region.items == 0 ? "=" : "") + region.operation);
  return found;
}

template <class Call>
std::vector<Region> logged(Call call) {
  cpu::start_region_log();
  call();
  return cpu::end_region_log();
}

void test_names() {
  const auto log = logged([] {
    parallel_for(4, kThreads, [](int64_t) {});
    const cpu::Operation outer("outer");
    parallel_for(4, kThreads, [](int64_t) {});
    const cpu::Operation inner("inner");
    cpu::parallel_ranges(5, kThreads, [](int64_t) {});
  });
  check(names(log) == std::vector<std::string>{"other", "outer", "outer", "=outer"},
        "regions have the name of the outermost operation, which ends last");
  check(log.size() == 4 && log[2].items == 5, "a region has its number of items");
  check(log.size() == 4 && log[3].begin <= log[1].begin && log[2].end <= log[3].end,
        "an operation spans its regions");
}

void test_what_a_thread_does_alone_is_no_region() {
  std::atomic<int> nested{0};
  const auto log = logged([&] {
    parallel_for(1, kThreads, [](int64_t) {});
    parallel_for(4, 1, [](int64_t) {});
    parallel_for(4, kThreads, [&](int64_t) { parallel_for(8, kThreads, [&](int64_t) { ++nested; }); });
  });
  check(nested == 32 && log.size() == 1, "calls from within an item are part of its region");
}

void test_exceptions() {
  const auto fail = [] {
    const cpu::Operation operation("failing");
    parallel_for(64, kThreads, [](int64_t item) {
      if (item == 7) throw std::runtime_error("no");
    });
  };
  const auto log = logged([&] {
    check_throws<std::runtime_error>("no", fail);
    parallel_for(2, kThreads, [](int64_t) {});
  });
  check(names(log) == std::vector<std::string>{"failing", "=failing", "other"},
        "a region that throws is kept, and its operation ends");
}

void test_the_log_begins_and_ends_within_a_region() {
  parallel_for(2, kThreads, [](int64_t item) {
    if (item == 0) cpu::start_region_log();
  });
  check(cpu::end_region_log().empty(), "a region that began before the log is not in it");
  cpu::start_region_log();
  parallel_for(2, kThreads, [](int64_t item) {
    if (item == 0) cpu::end_region_log();
  });
  check(cpu::end_region_log().empty(), "a region that ends after the log is not kept");
}

void test_several_callers(int rounds) {
  const std::vector<std::string> all = {"first", "second", "third"};
  const auto log = logged([&] {
    std::vector<std::thread> callers;
    for (const std::string& name : all) {
      callers.emplace_back([&name, rounds] {
        for (int i = 0; i < rounds; ++i) {
          const cpu::Operation operation(name.c_str());
          parallel_for(8, kThreads, [](int64_t) {});
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  });
  const auto found = names(log);
  for (const std::string& name : all) {
    check(std::count(found.begin(), found.end(), name) == rounds, "each caller names its regions: " + name);
    check(std::count(found.begin(), found.end(), "=" + name) == rounds, "and its operations: " + name);
  }
  for (const Region& region : log) {
    if (region.items == 0) continue;
    if (!check(region.threads >= 1 && region.threads <= kThreads && region.longest <= region.busy &&
                   region.busy <= region.threads * region.longest,
               "the busiest thread and all of them"))
      break;
  }
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// region_log_test ROUNDS
int main(int, char** argv) {
  using namespace tiny_llm_ext::tests;
  tiny_llm_ext::cpu::set_most_threads(kThreads);
  test_names();
  test_what_a_thread_does_alone_is_no_region();
  test_exceptions();
  test_the_log_begins_and_ends_within_a_region();
  test_several_callers(std::stoi(argv[1]));
  return finish("region_log_test");
}
