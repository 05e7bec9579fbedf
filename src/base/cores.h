// The cores that a process may run on, and whether the processes of a host have one core each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl {

/// The CPU resources of one process.
struct Cores {
  /// Numbers of the cores on which the process may run, in order; empty if the system does not
  /// report them.
  std::vector<int> allowed;
  /// CPU time that the process's control group may use, in cores; 0 for no limit.
  double quota = 0;
  /// Identifies the quota: equal for processes that share it. Contains no blanks.
  std::string quota_group = "-";

  friend bool operator==(const Cores&, const Cores&) = default;
};

Cores cores_of_this_process();

/// Returns the maximum number of processes per core; above 1, some processes share a core. This is
/// the largest of three kinds of ratios: all processes to all cores; the processes confined to one
/// set of cores to the size of that set; the processes of a control group to its quota. `all` is
/// the number of cores to assume if some process's allowed cores are unknown.
double processes_per_core(std::span<const Cores> processes, int all);

/// Returns the factor by which timeouts must be multiplied if `processes_per_core` processes share
/// a core, because a process may have to wait until the core is free. At least 1.
double patience_of(double processes_per_core);

/// Convert Cores to one line of text, and back. parse_cores() returns nothing for text that
/// serialise() cannot have written.
std::string serialise(const Cores& cores);
std::optional<Cores> parse_cores(std::string_view text);

/// Return the quota of a control group in cores, which is its quota divided by its period; 0 for no
/// limit. quota_of_cpu_max() takes the text of cpu.max, such as "150000 100000" or "max 100000".
/// quota_of_cfs() takes the texts of cpu.cfs_quota_us (-1 for no limit) and cpu.cfs_period_us.
double quota_of_cpu_max(std::string_view text);
double quota_of_cfs(std::string_view quota_us, std::string_view period_us);

/// The path of a process's control group for `controller` ("" in version 2 of control groups), from
/// the text of /proc/self/cgroup; empty if the text contains none that begins with a slash.
std::string control_group_path(std::string_view text, std::string_view controller);

}  // namespace mccl
