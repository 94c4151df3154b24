// The CPU quota of control groups, from folders with the layout of Linux.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

#include "check.h"
#include "cpu/interface/cpus.h"

namespace tiny_llm_ext::tests {
namespace {

namespace fs = std::filesystem;

using Files = std::initializer_list<std::pair<const char*, const char*>>;

constexpr const char* kGroups = "proc/self/cgroup";

// The quota with only these files.
int quota_with(const Files& files) {
  const fs::path root = fs::temp_directory_path() / ("quota_test." + std::to_string(getpid()));
  fs::remove_all(root);
  fs::create_directories(root);
  for (auto [name, text] : files) {
    fs::create_directories((root / name).parent_path());
    std::FILE* file = std::fopen((root / name).c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
  }
  const int cpus = cpu::quota_cpus(root.string());
  fs::remove_all(root);
  return cpus;
}

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
    return quota_with(
        {{kGroups, groups}, {quota_file.c_str(), microseconds}, {period_file.c_str(), "100000\n"}});
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

}  // namespace
}  // namespace tiny_llm_ext::tests

int main() {
  using namespace tiny_llm_ext::tests;
  test_version_2();
  test_nested_groups();
  test_version_1();
  test_without_groups();
  check(tiny_llm_ext::cpu::allowed_cpus() >= 1, "at least one CPU");
  return finish("quota_test");
}
