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

/// The number of processes per core where they are most crowded; above 1, some processes share a
/// core. Considers all cores together, each process's allowed cores with the processes that may run
/// nowhere else, and each control group's quota. `all`: number of cores to assume if some process's
/// allowed cores are unknown.
double processes_per_core(std::span<const Cores> processes, int all);

/// Returns the factor by which timeouts must be multiplied if `processes_per_core` processes share
/// a core, because a process may wait for its turn. At least 1.
double patience_of(double processes_per_core);

/// One line of text. parse_cores() returns nothing for text that serialise() cannot have written.
std::string serialise(const Cores& cores);
std::optional<Cores> parse_cores(std::string_view text);

/// Convert the quota of a control group to cores. cpu.max: "150000 100000" is 1.5, "max 100000" is
/// 0. cpu.cfs_quota_us and cpu.cfs_period_us: 150000 and 100000 are 1.5, -1 and 100000 are 0.
double quota_of_cpu_max(std::string_view text);
double quota_of_cfs(std::string_view quota_us, std::string_view period_us);

/// The path of a process's control group for `controller` ("" in version 2), from the text of
/// /proc/self/cgroup; empty if it names none.
std::string control_group_path(std::string_view text, std::string_view controller);

}  // namespace mccl
