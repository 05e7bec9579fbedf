// Attaches to running ranks of this user on this host, through their local sockets
// (engine/status_server.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "mccl/error.h"

namespace mccl::cli::sight {

struct RankSocket {
  pid_t pid = 0;
  int rank = 0;
  std::string job;  ///< A hash of the job's identity.
  std::string path;
};

/// Returns a text for messages, such as "rank 1 (process 4711)".
std::string text_of(const RankSocket& rank);

/// Parses "PID-RANK-JOB", the name of a socket in `folder`. Returns false for any other name.
bool parse_socket_name(const std::string& folder, std::string_view name, RankSocket& socket);

/// The sockets of all ranks of this user on this host, ordered by process and rank. Removes sockets
/// whose process no longer exists. Throws Error if other users can enter the folder of the sockets.
std::vector<RankSocket> find_ranks();

/// The sockets of one process. Throws InvalidArgument with the reason if there are none.
std::vector<RankSocket> ranks_of(pid_t pid);

/// Thrown if a rank has ended, for example because its process was killed.
class RankGone : public Error {
 public:
  using Error::Error;
};

/// Sends a request to a rank and returns the rank's answer, which is JSON. Throws RankGone if the
/// rank has ended, and Error if the rank does not answer in time or uses another version of MCCL.
std::string ask(const RankSocket& rank, std::string_view request);

}  // namespace mccl::cli::sight
