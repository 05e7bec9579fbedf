// A rank that runs: its streams, and how it ended.
#pragma once

#include <array>
#include <optional>

#include "cli/launch/console.h"
#include "cli/launch/input.h"
#include "cli/launch/lines.h"
#include "cli/launch/process.h"
#include "cli/launch/running_host.h"
#include "cli/launch/verdict.h"
#include "cli/launch/watch.h"

namespace mccl::cli::launch {

class RunningRank {
 public:
  /// `pieces_at_once`: what it writes is shown before the line ends, as for one that a person
  /// types to.
  RunningRank(const Rank& rank, RunningHost& host, Process process, bool pieces_at_once);

  /// Waits for output, unless the console is full, and for room for `input`.
  void watch(Watch& watch, Console& console, Input& input);
  /// Shows what has stood there for a while without an end of line.
  void show_pieces(Watch& watch, Console& console);
  /// Looks whether the process has ended. Returns true once, when it has.
  bool collect();
  /// Whether it has ended and all that it wrote has been read, or nobody waits for more of it.
  bool finished() const;

  /// Once it has finished: shows what is left of a line.
  void close(Console& console);

  int rank() const { return rank_->rank; }
  std::size_t host() const { return rank_->host; }
  /// Nothing while it runs.
  const std::optional<Exit>& exit() const { return exit_; }
  void resize(WindowSize size);

 private:
  struct Output {
    Descriptor descriptor;
    Lines lines;
    Clock::time_point since = {};  ///< When the last bytes came.
  };

  void read(Stream stream, Console& console);
  void put(Stream stream, std::string_view text, Console& console);
  void write(Input& input);
  Output& output(Stream stream) { return outputs_[static_cast<std::size_t>(stream)]; }

  const Rank* rank_;
  RunningHost* host_;
  Process process_;
  const bool pieces_at_once_;
  std::array<Output, 2> outputs_;
  std::optional<Exit> exit_;
  Clock::time_point ended_ = {};
};

}  // namespace mccl::cli::launch
