// The quota of control groups, kinds of cores, the default number of threads and nodes of memory, from
// folders with the layout of Linux; and the advice about memory that Linux gets.
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "cpu/interface/cpus.h"
#include "cpu/interface/threads.h"
#include "cpu/runtime/placement.h"

namespace tiny_llm_ext::tests {
namespace {

namespace fs = std::filesystem;

using Files = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kGroups = "proc/self/cgroup";

// What `read` returns for a root with only these files.
template <class Read>
auto with_root(const Files& files, Read read) {
  const fs::path root = fs::temp_directory_path() / ("cpus_test." + std::to_string(getpid()));
  fs::remove_all(root);
  fs::create_directories(root);
  for (const auto& [name, text] : files) {
    fs::create_directories((root / name).parent_path());
    std::FILE* file = std::fopen((root / name).c_str(), "w");
    std::fputs(text.c_str(), file);
    std::fclose(file);
  }
  const auto result = read(root.string());
  fs::remove_all(root);
  return result;
}

int quota_with(const Files& files) { return with_root(files, cpu::quota_cpus); }

void expect(int cpus, const Files& files, const std::string& what) {
  const int got = quota_with(files);
  check(got == cpus, what + ": " + std::to_string(got) + " CPUs, expected " + std::to_string(cpus));
}

void test_version_2() {
  const auto with = [](const char* text) -> int {
    return quota_with({{kGroups, "0::/\n"}, {"sys/fs/cgroup/cpu.max", text}});
  };
  check(with("200000 100000\n") == 2, "2 CPUs");
  check(with("150000 100000\n") == 2, "1.5 CPUs are rounded up");
  check(with("200001 100000\n") == 3, "a little more than 2 is rounded up");
  check(with("1000 100000\n") == 1, "0.01 CPUs are one");
  check(with("50000 25000\n") == 2, "another period");
  check(with("9223372036854775807 1\n") == 0, "an impossible number is no limit");
  for (const char* text : {"max 100000\n", "", "100000\n", "0 100000\n", "100000 0\n", "-1 100000\n", "abc\n",
                           "100000x 100000\n", "99999999999999999999999 100000\n"}) {
    check(with(text) == 0, std::string("no limit in '") + text + "'");
  }
}

void test_nested_groups() {
  const char* const groups = "0::/outer/inner\n";
  expect(2, {{kGroups, groups}, {"sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n"}},
         "the quota of the group");
  expect(3, {{kGroups, groups}, {"sys/fs/cgroup/outer/cpu.max", "300000 100000\n"}},
         "the quota of its parent");
  expect(4, {{kGroups, groups}, {"sys/fs/cgroup/cpu.max", "400000 100000\n"}},
         "the quota of the mount point");
  expect(1,
         {{kGroups, groups},
          {"sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n"},
          {"sys/fs/cgroup/outer/cpu.max", "100000 100000\n"},
          {"sys/fs/cgroup/cpu.max", "max 100000\n"}},
         "the smallest quota");
  expect(0, {{kGroups, groups}, {"sys/fs/cgroup/other/cpu.max", "100000 100000\n"}},
         "the quota of another group");
  expect(2,
         {{kGroups, "0::/../other\n"},
          {"sys/fs/cgroup/cpu.max", "200000 100000\n"},
          {"sys/fs/other/cpu.max", "100000 100000\n"}},
         "nothing outside of the mount point");
}

void test_version_1() {
  const char* const groups = "5:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/box\n0::/box\n";
  const char *const quota = "cpu.cfs_quota_us", *const period = "cpu.cfs_period_us";
  const auto in = [&](const std::string& folder, const char* microseconds) {
    const std::string quota_file = "sys/fs/cgroup/" + folder + quota;
    const std::string period_file = "sys/fs/cgroup/" + folder + period;
    return quota_with({{kGroups, groups}, {quota_file, microseconds}, {period_file, "100000\n"}});
  };
  check(in("cpu,cpuacct/box/", "150000\n") == 2, "by the names of both controllers");
  check(in("cpu/box/", "250000\n") == 3, "by the name of one");
  check(in("cpu/", "100000\n") == 1, "in a container, where the path is the host's");
  check(in("cpu/box/", "-1\n") == 0, "no limit");
  check(in("memory/box/", "100000\n") == 0, "another controller");
  expect(0, {{kGroups, groups}, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"}},
         "a quota without a period");
  expect(0,
         {{kGroups, "3:cpuset:/\n"},
          {"sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n"},
          {"sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n"}},
         "cpuset is not cpu");
}

void test_without_groups() {
  expect(0, {}, "no files");
  expect(0, {{"sys/fs/cgroup/cpu.max", "100000 100000\n"}}, "no list of groups");
  expect(0, {{kGroups, "nonsense\n:\n::\n0\n0:\n0::nonsense\n0::no/sense\n"}}, "malformed lines");
}

std::string of_cpu(int cpu, const std::string& name) {
  return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name;
}

std::vector<int> range(int begin, int end) {
  std::vector<int> numbers;
  for (; begin < end; begin++) numbers.push_back(begin);
  return numbers;
}

// A machine whose CPU n is a hyperthread of the CPUs in siblings[n].
Files with_siblings(const std::vector<std::string>& siblings) {
  Files files;
  for (size_t n = 0; n < siblings.size(); n++)
    files.emplace_back(of_cpu(static_cast<int>(n), "topology/thread_siblings_list"), siblings[n] + "\n");
  return files;
}

const Files kFourCores = with_siblings({"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"});
const Files kNeighbours = with_siblings({"0-1", "0-1", "2-3", "2-3"});

// Checks the default for these CPUs: its number and its reason.
void expect_threads(int threads, const std::string& reason, const std::vector<int>& allowed,
                    const Files& files) {
  const cpu::ThreadChoice choice =
      with_root(files, [&](const std::string& root) { return cpu::default_threads(allowed, root); });
  const std::string got = std::to_string(choice.threads.prompts) + ", " +
                          std::to_string(choice.threads.decoding) + " threads, " + choice.reason;
  const std::string number = std::to_string(threads);
  const std::string expected = number + ", " + number + " threads, " + number + " of " + reason;
  check(got == expected, "got '" + got + "', expected '" + expected + "'");
}

void test_hyperthreads_share_a_thread() {
  expect_threads(8, "8 CPUs: all that are allowed; quota none", range(0, 8), {});
  expect_threads(4, "8 CPUs: physical cores; quota none", range(0, 8), kFourCores);
  expect_threads(2, "4 CPUs: physical cores; quota none", range(0, 4), kNeighbours);
  expect_threads(4, "4 CPUs: all that are allowed; quota none", range(0, 4), kFourCores);
  expect_threads(3, "4 CPUs: physical cores; quota none", {1, 2, 5, 7}, kFourCores);
}

void test_two_cpus_have_two_threads() {
  expect_threads(2, "2 CPUs: all that are allowed; quota none", {0, 4}, kFourCores);
  expect_threads(1, "1 CPUs: all that are allowed; quota none", {4}, kFourCores);
  expect_threads(2, "3 CPUs: physical cores; quota none", range(0, 3), with_siblings({"0-2", "0-2", "0-2"}));
}

void test_a_quota_is_the_limit() {
  const auto with_quota = [](Files files, const char* quota) {
    files.emplace_back(kGroups, "0::/\n");
    files.emplace_back("sys/fs/cgroup/cpu.max", quota);
    return files;
  };
  expect_threads(3, "8 CPUs: physical cores; quota 3", range(0, 8),
                 with_quota(kFourCores, "300000 100000\n"));
  expect_threads(4, "8 CPUs: physical cores; quota 6", range(0, 8),
                 with_quota(kFourCores, "600000 100000\n"));
  expect_threads(1, "2 CPUs: all that are allowed; quota 1", range(0, 2), with_quota({}, "50000 100000\n"));
}

void test_slow_cores_of_arm_have_no_thread() {
  const auto with_capacities = [](const std::vector<int>& capacities) {
    Files files;
    for (size_t n = 0; n < capacities.size(); n++)
      files.emplace_back(of_cpu(static_cast<int>(n), "cpu_capacity"), std::to_string(capacities[n]) + "\n");
    return files;
  };
  const char* const fast = "8 CPUs: physical cores that are fast; quota none";
  expect_threads(4, fast, range(0, 8), with_capacities({325, 325, 325, 325, 871, 871, 871, 1024}));
  expect_threads(2, fast, range(0, 8), with_capacities({250, 250, 250, 250, 250, 250, 250, 1024}));
  expect_threads(4, "4 CPUs: all that are allowed; quota none", range(0, 4),
                 with_capacities({325, 325, 325, 325, 1024}));
  expect_threads(4, "4 CPUs: all that are allowed; quota none", range(0, 4),
                 with_capacities({1024, 1024, 1024, 1024}));
}

// Two performance cores with two hyperthreads each, and four efficient ones.
void test_efficient_cores_of_intel_have_no_thread() {
  Files files = with_siblings({"0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"});
  files.emplace_back("sys/devices/cpu_core/cpus", "0-3\n");
  files.emplace_back("sys/devices/cpu_atom/cpus", "4-7\n");
  expect_threads(2, "8 CPUs: physical cores that are fast; quota none", range(0, 8), files);
  expect_threads(3, "3 CPUs: all that are allowed; quota none", range(5, 8), files);
}

void test_malformed_files_are_no_knowledge() {
  for (const char* text : {"", "\n", "x\n", "-1\n", ",\n"}) {
    Files files = with_siblings({text, text});
    files.emplace_back("sys/devices/cpu_core/cpus", text);
    files.emplace_back(of_cpu(0, "cpu_capacity"), text);
    expect_threads(2, "2 CPUs: all that are allowed; quota none", range(0, 2), files);
  }
}

// Nodes from a list of those with memory, and the CPUs of nodes 0, 1 and 10.
void expect_nodes(const std::vector<int>& nodes, const std::vector<int>& cpus, const std::string& with_memory,
                  const std::vector<std::string>& lists, const std::string& what) {
  const std::string folder = "sys/devices/system/node/";
  const int numbers[] = {0, 1, 10};
  Files files = {{folder + "has_memory", with_memory}};
  for (size_t n = 0; n < lists.size(); n++)
    files.emplace_back(folder + "node" + std::to_string(numbers[n]) + "/cpulist", lists[n]);
  const std::vector<int> got =
      with_root(files, [&](const std::string& root) { return cpu::memory_nodes(cpus, root); });
  std::string text;
  for (int node : got) text += " " + std::to_string(node);
  check(got == nodes, what + ": got" + text);
}

void test_nodes_of_memory() {
  const std::vector<std::string> two = {"0-3,8-11\n", "4-7,12-15\n"};
  expect_nodes({0, 1}, range(0, 8), "0-1\n", two, "CPUs of both nodes");
  expect_nodes({0, 1}, {11, 15}, "0-1\n", two, "the last CPU of each");
  expect_nodes({0}, {0, 3, 8, 11}, "0-1\n", two, "CPUs of the first only");
  expect_nodes({1}, {12}, "0-1\n", two, "a CPU of the second only");
  expect_nodes({}, {16}, "0-1\n", two, "CPUs of none");
  expect_nodes({0, 10}, {0, 1}, "0,10\n", {"0\n", "2\n", "1"}, "gaps in the numbers");
  expect_nodes({0}, {0, 1}, "0-1\n", {"0-1\n", "\n"}, "a node without CPUs");
  expect_nodes({1}, {0, 1}, "1\n", {"0\n", "1\n"}, "a node without memory");
  expect_nodes({}, {0, 1}, "0-1\n", {}, "no lists of CPUs");
  for (const char* wrong : {"", "\n", "x\n", "-1\n", ",\n"})
    expect_nodes({}, {0, 1}, wrong, two, "a malformed list");
}

#if defined(__linux__)
void test_advice() {
  constexpr int64_t kBytes = 8 << 20, kPage = 4096, kOffset = 5 * kPage;
  auto* const memory =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 1, kBytes / 2);
  cpu::place_block(memory + kOffset, kBytes - 2 * kOffset);
  cpu::place_block(memory + kOffset, 100);
  cpu::place_block(memory, 0);
  // A container may forbid the call: then nothing has changed.
  char* const begin = memory + kBytes / 2;
  const bool interleaved = cpu::interleave(begin, kBytes / 2, {0});
  int mode = -1;
  constexpr int kOfAddress = 2, kInterleave = 3;  // MPOL_F_ADDR, MPOL_INTERLEAVE
  const bool known = syscall(SYS_get_mempolicy, &mode, nullptr, 0, begin, kOfAddress) == 0;
  check(!interleaved || !known || mode == kInterleave, "policy " + std::to_string(mode));
  check(!cpu::interleave(begin, kBytes / 2, {1000}), "no such node");
  check(!cpu::interleave(begin + 1, kPage, {0}), "not the beginning of a page");
  check(std::count(memory, begin, 1) == kBytes / 2, "written bytes stay");
  check(std::count(begin, memory + kBytes, 0) == kBytes / 2, "new bytes are 0");
  munmap(memory, kBytes);
}
#else
void test_advice() {
  char byte = 1;
  cpu::place_block(&byte, 1);
  check(!cpu::interleave(&byte, 1, {0}) && byte == 1, "no such advice here");
}
#endif

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() {
  using namespace tiny_llm_ext::tests;
  test_version_2();
  test_nested_groups();
  test_version_1();
  test_without_groups();
  test_hyperthreads_share_a_thread();
  test_two_cpus_have_two_threads();
  test_a_quota_is_the_limit();
  test_slow_cores_of_arm_have_no_thread();
  test_efficient_cores_of_intel_have_no_thread();
  test_malformed_files_are_no_knowledge();
  test_nodes_of_memory();
  test_advice();
  const std::vector<int> mine = tiny_llm_ext::cpu::affinity();
  check(!mine.empty() && tiny_llm_ext::cpu::allowed_cpus() <= static_cast<int>(mine.size()),
        "CPUs of a process");
  return finish("cpus_test");
}
