// How a job ended: which rank failed first, and the exit status that scripts see.
#pragma once

#include <string>
#include <vector>

namespace mccl::cli::launch {

/// What a shell adds to the number of the signal that killed a process.
inline constexpr int kSignalBase = 128;

/// How a process ended.
struct Exit {
  int status = 0;                ///< As a shell has it: 128 + the signal's number when killed.
  bool connection_lost = false;  ///< Its host went away; its true end is not known.

  bool good() const { return status == 0 && !connection_lost; }
};

struct Failure {
  int rank = 0;
  std::string host;
  Exit exit;
};

/// The first cause among failures that were noticed at about the same time, in that order: a rank
/// that was killed makes others fail, which may be noticed before it. `failures` is not empty.
const Failure& first_cause(const std::vector<Failure>& failures);

/// "exited with status 3", "was killed by signal 9 (Killed)".
std::string text_of(const Exit& exit);

/// A line for people: who failed first, where and how. What the rank itself said has been shown.
std::string text_of(const Failure& failure, int ranks);

}  // namespace mccl::cli::launch
