// The cores that a process may run on, and whether the processes of a host have one each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl {

struct Cores {
  /// Numbers of the cores that it may run on, in order; empty where the system does not tell.
  std::vector<int> allowed;
  /// How many cores' worth of time its control group may use; 0 for no limit.
  double quota = 0;
  /// Equal for processes that share that quota; a word.
  std::string quota_group = "-";

  friend bool operator==(const Cores&, const Cores&) = default;
};

Cores cores_of_this_process();

/// How many of these processes come to a core where they are most crowded; above 1 some of them
/// have to share. Processes crowd the cores that no others of them may leave, and the quota of
/// their control group. `all` cores count where nothing is known of a process's own.
double processes_per_core(std::span<const Cores> processes, int all);

/// How many times as long as alone a process may have to wait for a core, where so many share one.
double patience_of(double processes_per_core);

/// One line; parse gives nothing for what serialise cannot have written.
std::string serialise(const Cores& cores);
std::optional<Cores> parse_cores(std::string_view text);

/// Cores of a quota as control groups write it: "150000 100000" is 1.5, "max 100000" is 0
/// (cpu.max); 150000 and 100000 are 1.5, -1 and 100000 are 0 (cpu.cfs_quota_us and
/// cpu.cfs_period_us).
double quota_of_cpu_max(std::string_view text);
double quota_of_cfs(std::string_view quota_us, std::string_view period_us);

/// The path of a process's control group for `controller` ("" in version 2) in what
/// /proc/self/cgroup holds; empty when it names none.
std::string control_group_path(std::string_view text, std::string_view controller);

}  // namespace mccl
