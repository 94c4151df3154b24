// The CPUs that this process may use. In tests, `root` is a folder with some of the files of /proc and /sys;
// else it is "".
#pragma once

#include <string>
#include <vector>

namespace tiny_llm_ext::cpu {

// The numbers of the CPUs of its affinity, in ascending order; where the system has none, of all CPUs.
std::vector<int> affinity();

// At least 1: as many as these, but no more than the quota.
int allowed_cpus();

// The CPU quota of the process in Linux's control groups, in CPUs, rounded up; 0: no limit. It is the
// smallest quota of the process's group and its parents: cpu.max in version 2, cpu.cfs_quota_us and
// cpu.cfs_period_us in version 1.
int quota_cpus(const std::string& root);

// `cpus` without slow ones, in the same order: on Arm the CPUs with at least half the capacity of the
// fastest, of a hybrid of Intel those of its performance cores, on a Mac as many as it has performance cores.
// All of them where no such difference is known.
std::vector<int> fast_cpus(const std::vector<int>& cpus, const std::string& root);

// Hyperthreads share a core. A CPU whose core is unknown has one of its own.
int physical_cores(const std::vector<int>& cpus, const std::string& root);

// The NUMA nodes with memory to which any of these CPUs belongs; none where the system has no nodes.
std::vector<int> memory_nodes(const std::vector<int>& cpus, const std::string& root);

}  // namespace tiny_llm_ext::cpu
