// A running rank: its streams, and how it ended.
#pragma once

#include <array>
#include <optional>

#include "cli/kit/dialogue.h"
#include "cli/kit/process.h"
#include "cli/kit/watch.h"
#include "cli/launch/console.h"
#include "cli/launch/input.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class RunningRank {
 public:
  /// If `pieces_at_once` is true, output is shown before its line ends. This is for a rank that
  /// receives the user's keys.
  RunningRank(const Rank& rank, RunningHost& host, Process process, bool pieces_at_once);

  /// Registers the rank's output with `watch`, unless the console is full. Also registers its
  /// input, if bytes of `input` are pending.
  void watch(Watch& watch, Console& console, Input& input);
  /// Shows an unfinished line that has not grown for a short while.
  void show_pieces(Watch& watch, Console& console);
  /// Checks whether the process has ended, or the rank's shell wrapper has reported the end of the
  /// rank. Returns true only the first time that it finds either.
  bool collect();
  /// True if the wrapper has reported the rank's end and collect() has not processed it yet.
  bool tells_its_end() const { return told_status() && !exit_; }
  /// True if the rank has ended and all its output has been read. Processes that it left behind may
  /// hold its streams open; their output is read for one more second.
  bool finished() const;

  /// Called once finished() is true: shows the rest of an unfinished line and closes the streams.
  void close(Console& console);

  int rank() const { return rank_->rank; }
  std::size_t host() const { return rank_->host; }
  /// How the rank ended; empty while it runs.
  const std::optional<Exit>& exit() const { return exit_; }
  void resize(WindowSize size);

 private:
  struct Output {
    Descriptor descriptor;
    Lines lines;
    RankWords words;
    Clock::time_point since = {};  ///< Time at which the last bytes arrived.

    bool closed() const { return descriptor.get() < 0; }
  };

  void read(Stream stream, Console& console);
  void end(Stream stream, Console& console);
  void put(Stream stream, std::string_view text, Console& console);
  void write(Input& input);
  const std::optional<int>& told_status() const { return outputs_[0].words.status(); }
  /// True if everything that the program wrote before it ended has been read.
  bool has_read_all() const;
  Output& output(Stream stream) { return outputs_[static_cast<std::size_t>(stream)]; }

  const Rank* rank_;
  RunningHost* host_;
  Process process_;
  const bool pieces_at_once_;
  std::array<Output, 2> outputs_;
  bool collected_ = false;
  std::optional<Exit> exit_;
  /// Time at which the rank had ended and all its own output had been read.
  Clock::time_point ended_ = {};
};

}  // namespace mccl::cli::launch
