// How a job ended: which rank failed first, and the exit status that scripts see.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// How a process ended.
struct Exit {
  int status = 0;                ///< As a shell has it: 128 + the signal's number when killed.
  bool connection_lost = false;  ///< Its host went away; its true end is not known.

  bool good() const { return status == 0 && !connection_lost; }
};

/// The last lines that a rank wrote to standard error.
class LastLines {
 public:
  /// Whole lines, or pieces of one.
  void add(std::string_view text);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
  bool open_ = false;  ///< The last line has not ended.
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

/// Several lines for people: who failed first, where, how, and what it said last.
std::string text_of(const Failure& failure, int ranks, const LastLines& said);

}  // namespace mccl::cli::launch
