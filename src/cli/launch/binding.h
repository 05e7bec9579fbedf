// Which cores of its host a rank is bound to.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

enum class BindTo {
  share,  ///< Each rank gets an equal part of the cores, together all of them.
  core,   ///< Each rank gets one core.
  none,
};
inline constexpr int kBindToCount = 3;
std::string_view name_of(BindTo bind_to);

/// The processors of a host as its kernel numbers them: one for each thread of a core.
struct Processors {
  /// Those that the job may use, threads of a core and cores of a socket side by side; each with a
  /// number of its core that is equal for threads of the same one.
  std::vector<std::pair<int, int>> allowed;
  double quota = 0;          ///< Processors' worth of time that its control group may use; 0: all.
  std::string why_not = {};  ///< Nothing can be bound there, for this reason.
};

struct Binding {
  std::vector<int> processors;  ///< Empty: the rank is not bound.
  std::string why_not;
};

/// For each of the ranks of a host, in order, whose variables are given.
std::vector<Binding> bindings_of(BindTo bind_to, const Processors& processors,
                                 const std::vector<Variables>& ranks);

/// "0-3,8", as the kernel and taskset write it.
std::string list_of(const std::vector<int>& processors);

/// `list` is such a list; `places` says "PROCESSOR:SOCKET:CORE" for each processor, with blanks
/// between.
Processors processors_of(std::string_view list, std::string_view places);

/// Of this process. An affinity that the user has set, as taskset does, is a reason not to bind.
Processors processors_here();

}  // namespace mccl::cli::launch
