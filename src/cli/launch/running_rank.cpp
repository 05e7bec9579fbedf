#include "cli/launch/running_rank.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "cli/launch/input.h"
#include "cli/launch/terminal.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// Reads of one stream before others have their turn.
constexpr int kReadsInTurn = 4;
/// Before a piece of a line is shown, so that programs that write a line in pieces do not tear.
constexpr auto kBeforePiece = 60ms;
/// For output that somebody else still holds open when the rank has ended.
constexpr auto kForRest = 1s;

}  // namespace

RunningRank::RunningRank(const Rank& rank, RunningHost& host, Process process, bool pieces_at_once)
    : rank_(&rank), host_(&host), process_(std::move(process)), pieces_at_once_(pieces_at_once) {
  output(Stream::output).descriptor = std::move(process_.output);
  output(Stream::error).descriptor = std::move(process_.error);
}

void RunningRank::watch(Watch& watch, Console& console, Input& input) {
  for (const Stream stream : {Stream::output, Stream::error}) {
    const int descriptor = output(stream).descriptor.get();
    if (descriptor < 0 || console.full()) continue;
    watch.on(descriptor, POLLIN, [this, stream, &console] { read(stream, console); });
  }
  if (exit_ && console.full()) ended_ = Clock::now();
  if (exit_ && !finished()) watch.at(ended_ + kForRest);
  if (process_.input.get() < 0) return;
  const auto reader = static_cast<std::size_t>(rank());
  if (input.exhausted(reader) || !input.reading(reader)) {
    write(input);
  } else if (!input.pending(reader).empty()) {
    watch.on(process_.input.get(), POLLOUT, [this, &input] { write(input); });
  }
}

void RunningRank::read(Stream stream, Console& console) {
  Output& from = output(stream);
  for (int turn = 0; turn < kReadsInTurn; ++turn) {
    const std::span<char> space = from.lines.space();
    const ssize_t n = read_some(from.descriptor.get(), space.data(), space.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {  // a terminal says so with an error
      put(stream, from.lines.take_rest(), console);
      from.descriptor.close();
      return;
    }
    from.lines.filled(static_cast<std::size_t>(n));
    from.since = Clock::now();
    put(stream, from.lines.take_lines(), console);
    if (pieces_at_once_ && console.shows_pieces(stream))
      put(stream, from.lines.take_characters(), console);
    if (static_cast<std::size_t>(n) < space.size()) return;
  }
}

void RunningRank::put(Stream stream, std::string_view text, Console& console) {
  console.put(rank(), stream, text);
}

void RunningRank::show_pieces(Watch& watch, Console& console) {
  for (const Stream stream : {Stream::output, Stream::error}) {
    Output& from = output(stream);
    if (from.lines.empty() || !console.shows_pieces(stream)) continue;
    if (Clock::now() >= from.since + kBeforePiece) {
      put(stream, from.lines.take_characters(), console);
    } else {
      watch.at(from.since + kBeforePiece);
    }
  }
}

void RunningRank::write(Input& input) {
  const auto reader = static_cast<std::size_t>(rank());
  for (;;) {
    const std::string_view bytes = input.pending(reader);
    if (bytes.empty()) break;
    const ssize_t n = ::write(process_.input.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {  // it reads no more
      input.leave(reader);
      break;
    }
    input.taken(reader, static_cast<std::size_t>(n));
  }
  if (!input.exhausted(reader) && input.reading(reader)) return;
  // A terminal is at its end when somebody says so; closing it would hang up.
  if (process_.has_terminal && ::write(process_.input.get(), &kEndOfInput, 1) < 0) return;
  process_.input.close();
}

bool RunningRank::collect() {
  if (exit_) return false;
  const std::optional<Exit> exit = launch::collect(process_.id);
  if (!exit) return false;
  exit_ = host_->ended(process_, *exit);
  ended_ = Clock::now();
  return true;
}

bool RunningRank::finished() const {
  if (!exit_) return false;
  const bool read = outputs_[0].descriptor.get() < 0 && outputs_[1].descriptor.get() < 0;
  return read || Clock::now() >= ended_ + kForRest;
}

void RunningRank::close(Console& console) {
  for (const Stream stream : {Stream::output, Stream::error}) {
    put(stream, output(stream).lines.take_rest(), console);
    output(stream).descriptor.close();
  }
  process_.input.close();
}

void RunningRank::resize(WindowSize size) {
  if (process_.has_terminal && process_.input.get() >= 0) launch::resize(process_.input, size);
}

}  // namespace mccl::cli::launch
