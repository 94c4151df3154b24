// Affinity from the system, quotas from the files of control groups.
#include "cpu/interface/cpus.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
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

int allowed_cpus() {
  int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
#endif
  const int quota = quota_cpus("");
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace tiny_llm_ext::cpu
