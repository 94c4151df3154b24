// How many CPUs this process may use.
#pragma once

#include <string>

namespace tiny_llm_ext::cpu {

// The CPUs of its affinity, at most the quota below; at least 1.
int allowed_cpus();

// The CPU quota of the process in Linux's control groups, in CPUs, rounded up; 0: no limit. It is the
// smallest quota of the process's group and its parents: cpu.max in version 2, cpu.cfs_quota_us and
// cpu.cfs_period_us in version 1. Reads proc/self/cgroup and sys/fs/cgroup under `root`, which is "" but in
// tests.
int quota_cpus(const std::string& root);

}  // namespace tiny_llm_ext::cpu
