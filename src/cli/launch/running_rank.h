// A rank that runs: its streams, and how it ended.
#pragma once

#include <array>
#include <optional>

#include "cli/launch/console.h"
#include "cli/launch/input.h"
#include "cli/launch/lines.h"
#include "cli/launch/process.h"
#include "cli/launch/rank_words.h"
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
  /// Looks whether the process has ended, or the rank's script has told its end. Returns true once,
  /// when one of them has.
  bool collect();
  /// Whether its script has told its end, which collect() has not seen.
  bool tells_its_end() const { return told_status() && !exit_; }
  /// Whether it has ended and all that it wrote has been read. Processes that it has left behind
  /// may hold its streams open; what they write is read for a second more.
  bool finished() const;

  /// Once it has finished: shows what is left of a line, and reads no more.
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
    RankWords words;
    Clock::time_point since = {};  ///< When the last bytes came.

    bool closed() const { return descriptor.get() < 0; }
  };

  void read(Stream stream, Console& console);
  void end(Stream stream, Console& console);
  void put(Stream stream, std::string_view text, Console& console);
  void write(Input& input);
  const std::optional<int>& told_status() const { return outputs_[0].words.status(); }
  /// Whether all has been read that the program wrote before it ended.
  bool has_read_all() const;
  Output& output(Stream stream) { return outputs_[static_cast<std::size_t>(stream)]; }

  const Rank* rank_;
  RunningHost* host_;
  Process process_;
  const bool pieces_at_once_;
  std::array<Output, 2> outputs_;
  bool collected_ = false;
  std::optional<Exit> exit_;
  Clock::time_point ended_ = {};  ///< When all had been read that the program wrote.
};

}  // namespace mccl::cli::launch
