// Asks the ranks of running jobs: the ranks of this user on this host through their local sockets
// (engine/status_server.h), and the ranks on other hosts through a rank on this host.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/sight/report.h"
#include "mccl/error.h"

namespace mccl::cli::sight {

struct RankSocket {
  pid_t pid = 0;
  int rank = 0;
  std::string job;  ///< A hash of the job's identity.
  std::string path;
};

/// Parses "PID-RANK-JOB", the name of a socket in `folder`. Empty for any other name.
std::optional<RankSocket> parse_socket_name(const std::string& folder, std::string_view name);

/// The sockets of one process. Throws InvalidArgument with the reason if there are none, and Error
/// if other users can enter the folder of the sockets.
std::vector<RankSocket> ranks_of(pid_t pid);

/// Thrown if a rank has ended, for example because its process was killed.
class RankGone : public Error {
 public:
  using Error::Error;
};

/// Sends a request to a rank and returns the rank's answer, which is JSON. Throws RankGone if the
/// rank has ended, and Error if the rank does not answer in time or uses another version of MCCL.
std::string ask(const RankSocket& rank, std::string_view request);

/// Returns the reports of all ranks of the jobs that have a rank of this user on this host. If
/// `pid` is given, returns only the reports of ranks in that process's jobs. If a rank does not
/// answer, its report has a `trouble`. Throws InvalidArgument if that process runs no rank.
std::vector<RankReport> survey(std::optional<int> pid);

/// Parses a rank's answer to node::kRequestOthers: the statuses of the other ranks of its job.
/// Skips the ranks in `known`. Throws InvalidArgument if the text is invalid; the message begins
/// with `who`.
std::vector<RankReport> read_others(std::string_view text, std::string_view who,
                                    std::span<const int> known);

}  // namespace mccl::cli::sight
