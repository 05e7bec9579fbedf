// How a job ended: which rank failed first, and the job's exit status.
#pragma once

#include <string>
#include <vector>

namespace mccl::cli::launch {

/// A shell reports status kSignalBase + N for a process that signal N killed.
inline constexpr int kSignalBase = 128;

/// How a process ended.
struct Exit {
  int status = 0;  ///< Exit status, or 128 + the signal number if the process was killed.
  /// True if the host was lost, so the process's real end is unknown.
  bool connection_lost = false;

  bool good() const { return status == 0 && !connection_lost; }
};

struct Failure {
  int rank = 0;
  std::string host;
  Exit exit;
};

/// Returns the first cause among failures that were noticed at about the same time. `failures` is
/// in the order of detection and not empty. A rank that was killed makes others fail, and those
/// failures may be noticed first. So lost hosts take precedence, then killed ranks.
const Failure& first_cause(const std::vector<Failure>& failures);

/// Returns text such as "exited with status 3" or "was killed by signal 9 (Killed)".
std::string text_of(const Exit& exit);

/// Returns a line for the user: which rank failed first, where and how. The rank's own output has
/// already been shown.
std::string text_of(const Failure& failure, int ranks);

}  // namespace mccl::cli::launch
