// How many CPUs this process may use.
#pragma once

#include <string>

namespace tiny_llm_ext::cpu {

// As many as its affinity allows, and not more than the quota below; at least 1.
int allowed_cpus();

// The share of CPU time that Linux's control groups grant a process, in whole CPUs, rounded up; 0: no limit.
// Under `root`, "" for the system's own, lie proc/self/cgroup and sys/fs/cgroup: cpu.max of version 2,
// cpu.cfs_quota_us and cpu.cfs_period_us of version 1. The least of a group and all those around it counts.
int quota_cpus(const std::string& root);

}  // namespace tiny_llm_ext::cpu
