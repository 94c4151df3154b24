// Affinity from the system, quotas from the files of control groups, kinds of cores and nodes of memory from
// sysfs.
#include "cpu/interface/cpus.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

namespace tiny_llm_ext::cpu {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();

// The first 64 KB of a file, empty if there is none. Without iostreams, see to_text in core/checks.cpp.
std::string contents(const std::string& path) {
  std::string text(1 << 16, '\0');
  std::FILE* file = std::fopen(path.c_str(), "r");
  text.resize(file ? std::fread(text.data(), 1, text.size(), file) : 0);
  if (file) std::fclose(file);
  return text;
}

// Removes the text before the first separator, and that, from `rest`; returns the text.
std::string_view cut(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view first = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return first;
}

// None for "max" and -1, which mean no limit.
std::optional<int64_t> microseconds(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool ended = end == text.data() + text.size() || *end == '\n';
  return error == std::errc() && ended && number > 0 ? std::optional(number) : std::nullopt;
}

int cpus_of(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period) return kNoLimit;
  return static_cast<int>(std::min<int64_t>((*quota - 1) / *period + 1, kNoLimit));
}

// The quota of one group, in version 1 or 2.
int limit_of(const std::string& group) {
  const std::string text = contents(group + "/cpu.max");
  std::string_view rest = text;
  const std::string_view quota = cut(rest, ' ');
  return std::min(cpus_of(microseconds(quota), microseconds(rest)),
                  cpus_of(microseconds(contents(group + "/cpu.cfs_quota_us")),
                          microseconds(contents(group + "/cpu.cfs_period_us"))));
}

// The smallest quota of a group and its parents up to the mount point. In a container, the path may be that
// of the host, which does not exist here: the container's own group is then the mounted one.
int limit_along(const std::string& mounted, std::string_view path) {
  int least = limit_of(mounted);
  if (path.find("..") != path.npos) return least;  // outside of what is mounted
  while (path.size() > 1 && path.front() == '/') {
    least = std::min(least, limit_of(mounted + std::string(path)));
    path.remove_suffix(path.size() - path.rfind('/'));
  }
  return least;
}

// The numbers of a list such as "0-3,8\n".
std::vector<int> numbers_of(std::string_view list) {
  std::vector<int> numbers;
  while (!list.empty()) {
    std::string_view range = cut(list, ',');
    int first = 0, last = 0;
    const char* const end = range.data() + range.size();
    const auto [next, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc()) break;
    const bool is_range = next != end && *next == '-';
    if (!is_range || std::from_chars(next + 1, end, last).ec != std::errc()) last = first;
    for (; first <= last; first++) numbers.push_back(first);
  }
  return numbers;
}

std::string folder_of(int cpu, const std::string& root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

// 0 if unknown.
int64_t capacity_of(int cpu, const std::string& root) {
  const std::vector<int> capacity = numbers_of(contents(folder_of(cpu, root) + "/cpu_capacity"));
  return capacity.empty() ? 0 : capacity[0];
}

bool holds(std::string_view controllers, std::string_view name) {
  while (!controllers.empty()) {
    if (cut(controllers, ',') == name) return true;
  }
  return false;
}

}  // namespace

int quota_cpus(const std::string& root) {
  const std::string groups = contents(root + "/proc/self/cgroup");
  const std::string mounted = root + "/sys/fs/cgroup";
  int least = kNoLimit;
  std::string_view lines = groups;
  while (!lines.empty()) {
    // "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
    std::string_view path = cut(lines, '\n');
    const std::string_view number = cut(path, ':'), controllers = cut(path, ':');
    if (number == "0" && controllers.empty()) least = std::min(least, limit_along(mounted, path));
    if (!holds(controllers, "cpu")) continue;
    for (const std::string& folder : {std::string(controllers), std::string("cpu")})
      least = std::min(least, limit_along(mounted + "/" + folder, path));
  }
  return least == kNoLimit ? 0 : least;
}

std::vector<int> fast_cpus(const std::vector<int>& cpus, const std::string& root) {
  std::vector<int> fast;
#if defined(__APPLE__)
  int count = 0;
  size_t size = sizeof count;
  const bool known =
      root.empty() && sysctlbyname("hw.perflevel0.physicalcpu", &count, &size, nullptr, 0) == 0;
  if (known && count > 0 && count < static_cast<int>(cpus.size()))
    return {cpus.begin(), cpus.begin() + count};  // the system chooses where threads run
#endif
  int64_t largest = 0;
  for (int cpu : cpus) largest = std::max(largest, capacity_of(cpu, root));
  const std::vector<int> performance = numbers_of(contents(root + "/sys/devices/cpu_core/cpus"));
  for (int cpu : cpus) {
    const bool is_atom =
        !performance.empty() && std::find(performance.begin(), performance.end(), cpu) == performance.end();
    if (!is_atom && 2 * capacity_of(cpu, root) >= largest) fast.push_back(cpu);
  }
  return fast.empty() ? cpus : fast;
}

int physical_cores(const std::vector<int>& cpus, const std::string& root) {
  std::set<int> first_threads;
  for (int cpu : cpus) {
    const auto siblings = numbers_of(contents(folder_of(cpu, root) + "/topology/thread_siblings_list"));
    first_threads.insert(siblings.empty() ? cpu : siblings[0]);
  }
  return static_cast<int>(first_threads.size());
}

std::vector<int> memory_nodes(const std::vector<int>& cpus, const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::vector<int> nodes;
  for (int node : numbers_of(contents(folder + "has_memory"))) {
    const std::vector<int> own = numbers_of(contents(folder + "node" + std::to_string(node) + "/cpulist"));
    if (std::find_first_of(own.begin(), own.end(), cpus.begin(), cpus.end()) != own.end())
      nodes.push_back(node);
  }
  return nodes;
}

std::vector<int> affinity() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  for (int cpu = 0; known && cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
#endif
  if (!cpus.empty()) return cpus;
  cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

int allowed_cpus() {
  const int cpus = static_cast<int>(affinity().size());
  const int quota = quota_cpus("");
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace tiny_llm_ext::cpu
