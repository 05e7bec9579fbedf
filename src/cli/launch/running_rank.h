// A running rank: its streams, and how it ended.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "cli/kit/dialogue.h"
#include "cli/kit/process.h"
#include "cli/launch/console.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class RunningRank {
 public:
  /// `pieces_at_once`: a terminal shows output before the end of its line, for a rank that receives
  /// the user's keys.
  RunningRank(const RankPlan& rank, RunningHost& host, ChildProcess process, bool pieces_at_once)
      : rank_(&rank), host_(&host), process_(std::move(process)), pieces_at_once_(pieces_at_once) {
    output(OutputStream::output).descriptor = std::move(process_.output);
    output(OutputStream::error).descriptor = std::move(process_.error);
    if (process_.token.empty()) return;
    output(OutputStream::output).words = RankWords(process_.token, true);
    output(OutputStream::error).words = RankWords(process_.token, false);
  }

  /// Registers the rank's output with `watch` if the console is not full, and the rank's input if
  /// bytes of `input` are pending for it.
  void watch(Watch& watch, Console& console, Input& input) {
    if (finished()) close(console);
    for (const OutputStream stream : {OutputStream::output, OutputStream::error}) {
      const int descriptor = output(stream).descriptor.get();
      if (descriptor < 0 || console.full()) continue;
      watch.on(descriptor, POLLIN, [this, stream, &console] { read(stream, console); });
    }
    if (exit_ && (console.full() || !has_read_all())) ended_ = Clock::now();
    if (exit_ && !finished()) watch.at(ended_ + kForRest);
    if (process_.input.get() < 0) return;
    const auto reader = static_cast<std::size_t>(rank());
    if (input.exhausted(reader) || !input.reading(reader)) {
      write(input);
    } else if (!input.pending(reader).empty()) {
      watch.on(process_.input.get(), POLLOUT, [this, &input] { write(input); });
    }
  }

  /// Shows an unfinished line that has not grown for a short while.
  void show_pieces(Watch& watch, Console& console) {
    for (const OutputStream stream : {OutputStream::output, OutputStream::error}) {
      Output& from = output(stream);
      if (from.lines.empty() || !console.shows_pieces(stream)) continue;
      if (Clock::now() >= from.since + kBeforePiece) {
        put(stream, from.lines.take_characters(), console);
      } else {
        watch.at(from.since + kBeforePiece);
      }
    }
  }

  /// Returns true once: when the process has ended, or the rank's shell wrapper has reported the
  /// end of the rank.
  bool collect() {
    if (collected_) return false;
    const std::optional<Exit> end = reap(process_.id);
    collected_ = end.has_value();
    if (exit_ || (!end && !announced_status())) return false;
    const bool announced = announced_status().has_value();
    exit_ =
        host_->ended(process_, announced ? Exit{.status = *announced_status()} : *end, announced);
    ended_ = Clock::now();
    return true;
  }

  /// Reaps the process of a rank that has ended. Returns true once that is done.
  bool collect_rest() {
    collect();
    return collected_;
  }

  /// True if collect() has yet to process the shell wrapper's report of the rank's end.
  bool has_announced_end() const { return announced_status() && !exit_; }
  /// True if the rank has ended and all its output has been read. If processes that it left behind
  /// hold its streams open, their output is read for one more second.
  bool finished() const {
    if (!exit_) return false;
    if (outputs_[0].closed() && outputs_[1].closed()) return true;
    return has_read_all() && Clock::now() >= ended_ + kForRest;
  }

  /// Shows the rest of an unfinished line and closes the streams. finished() must be true.
  void close(Console& console) {
    for (const OutputStream stream : {OutputStream::output, OutputStream::error})
      if (!output(stream).closed()) end(stream, console);
    process_.input.close();
    // Without this SIGTERM, ssh would run as long as processes that the rank left behind hold its
    // session open.
    if (!collected_) ::kill(process_.id, SIGTERM);
  }

  int rank() const { return rank_->rank; }
  std::size_t host() const { return rank_->host; }
  /// How the rank ended; empty while it runs.
  const std::optional<Exit>& exit() const { return exit_; }
  void resize(const winsize& size) {
    if (process_.has_terminal && process_.input) ::ioctl(process_.input.get(), TIOCSWINSZ, &size);
  }

 private:
  static constexpr int kReadsInTurn = 4;  ///< Reads of one stream before others are read.
  /// Time before an unfinished line is shown, so that the program can finish it.
  static constexpr std::chrono::milliseconds kBeforePiece{60};
  /// Time for which output is read after the rank has ended, while others hold its streams open.
  static constexpr std::chrono::seconds kForRest{1};

  struct Output {
    Descriptor descriptor;
    Lines lines;
    RankWords words;
    Clock::time_point since = {};  ///< Time at which the last bytes arrived.

    bool closed() const { return descriptor.get() < 0; }
  };

  void read(OutputStream stream, Console& console) {
    Output& from = output(stream);
    for (int turn = 0; turn < kReadsInTurn; ++turn) {
      std::span<char> space = from.lines.space();
      const std::size_t held = from.words.put_held(space);
      const std::span<char> free = space.subspan(held);
      const ssize_t n = read_some(from.descriptor.get(), free.data(), free.size());
      const int error = errno;
      const std::size_t bytes = held + static_cast<std::size_t>(std::max<ssize_t>(n, 0));
      from.lines.filled(from.words.filter(space.first(bytes)));
      if (n < 0 && error == EAGAIN) return;
      if (n <= 0) {  // End of stream; a terminal reports it as an error.
        end(stream, console);
        return;
      }
      from.since = Clock::now();
      put(stream, from.lines.take_lines(), console);
      if (pieces_at_once_ && console.shows_pieces(stream))
        put(stream, from.lines.take_characters(), console);
      if (static_cast<std::size_t>(n) < free.size()) return;
    }
  }

  void end(OutputStream stream, Console& console) {
    Output& from = output(stream);
    put(stream, from.lines.take_rest(), console);
    put(stream, from.words.rest(), console);
    from.descriptor.close();
  }

  void put(OutputStream stream, std::string_view text, Console& console) {
    console.put(rank(), stream, text);
  }

  void write(Input& input) {
    const auto reader = static_cast<std::size_t>(rank());
    for (;;) {
      const std::string_view bytes = input.pending(reader);
      if (bytes.empty()) break;
      const ssize_t n = ::write(process_.input.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) {  // The rank has closed its input.
        input.leave(reader);
        break;
      }
      input.taken(reader, static_cast<std::size_t>(n));
    }
    if (!input.exhausted(reader) && input.reading(reader)) return;
    // Ctrl-D ends the input of a terminal. Closing the terminal would send SIGHUP to the rank.
    if (process_.has_terminal && ::write(process_.input.get(), &kEndOfInput, 1) < 0) return;
    process_.input.close();
  }

  const std::optional<int>& announced_status() const { return outputs_[0].words.status(); }
  /// True if everything that the program wrote before it ended has been read.
  bool has_read_all() const {
    // A reaped process writes no more. Its output is in its streams, and is read within kForRest.
    if (collected_) return true;
    const auto read = [](const Output& from) { return from.closed() || from.words.status(); };
    return read(outputs_[0]) && (process_.has_terminal || read(outputs_[1]));
  }

  Output& output(OutputStream stream) { return outputs_[static_cast<std::size_t>(stream)]; }

  const RankPlan* rank_;
  RunningHost* host_;
  ChildProcess process_;
  const bool pieces_at_once_;
  std::array<Output, 2> outputs_;
  bool collected_ = false;
  std::optional<Exit> exit_;
  /// Time at which the rank had ended and all its own output had been read.
  Clock::time_point ended_ = {};
};

}  // namespace mccl::cli::launch
