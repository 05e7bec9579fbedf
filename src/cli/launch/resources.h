// Chooses the cores to which each rank of a host is bound, and the TCP ports of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

enum class BindTo {
  share,  ///< The cores are divided equally among the ranks.
  core,   ///< Each rank gets one core.
  none,
};
inline constexpr int kBindToCount = 3;
std::string_view name_of(BindTo bind_to);

/// The processors of a host. Each hardware thread of a core is one processor, numbered by the
/// kernel.
struct Processors {
  /// The processors that the job may use, in one list for each core. Cores of a socket are
  /// adjacent.
  std::vector<std::vector<int>> cores;
  double quota = 0;  ///< CPU time that the job's control group may use, in processors; 0: no limit.
  /// The reason why ranks cannot be bound on this host; empty if they can.
  std::string why_not = {};
};

struct Binding {
  std::vector<int> processors;  ///< Empty: the rank is not bound.
  std::string why_not;
};

/// Returns a binding for each rank of a host. `ranks` holds their environment variables.
std::vector<Binding> bindings_of(BindTo bind_to, const Processors& processors,
                                 const std::vector<Variables>& ranks);

/// Returns a list such as "0-3,8", as the kernel and taskset write it.
std::string list_of(const std::vector<int>& processors);

/// Parses `list`, which has the form of list_of(), and `places`, which holds
/// "PROCESSOR:SOCKET:CORE" for each processor, separated by blanks.
Processors processors_of(std::string_view list, std::string_view places);

/// Returns the processors that this process may use. Sets Processors::why_not if an affinity has
/// been set, for example by taskset.
Processors processors_here();

inline constexpr int kUsualPort = 32323;

/// Returns placeholders for the addresses at which the ranks will meet, for --print-env and
/// --dry-run, which contact no host.
std::vector<ReachedHost> expected_places(const Job& job);
Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const ReachedHost> places);

/// Returns consecutive ports from `first` - 2 up: root, master, and the ports of MLX's ring. Throws
/// InvalidArgument if there are too few.
Ports ports_from(const Job& job, int first);
/// Returns different TCP ports of this machine that are not in use at the moment.
std::vector<std::uint16_t> free_ports(std::size_t count);

}  // namespace mccl::cli::launch
