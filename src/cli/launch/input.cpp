#include "cli/launch/input.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace mccl::cli::launch {
namespace {

/// Maximum number of bytes by which a rank may lag behind. A rank that does not read should not
/// soon hold up the others, but must not fill the memory either.
constexpr std::uint64_t kMostBehind = std::uint64_t{64} << 20;
/// Interval at which a job in the background checks whether it has come to the foreground of its
/// terminal.
constexpr std::chrono::seconds kBetweenLooksAtTerminal{1};

}  // namespace

void Input::watch(Watch& watch, bool at_terminal) {
  if (!wants_more()) return;
  if (in_the_background()) {
    watch.at(Clock::now() + kBetweenLooksAtTerminal);
  } else {
    watch.on(STDIN_FILENO, POLLIN, [this, at_terminal] { read(at_terminal); });
  }
}

void Input::read(bool at_terminal) {
  std::array<char, 1 << 16> bytes;
  const ssize_t n = read_some(STDIN_FILENO, bytes.data(), bytes.size());
  if (n > 0) {
    add({bytes.data(), static_cast<std::size_t>(n)});
  } else if (n == 0 && at_terminal) {
    // Ctrl-D ends the current read but does not close the terminal.
    add({&kEndOfInput, 1});
  } else {
    end();
  }
}

void Input::add(std::string_view bytes) {
  bytes_ += bytes;
  drop_what_all_have();
}

std::string_view Input::pending(std::size_t reader) const {
  if (!reading_[reader]) return {};
  return std::string_view(bytes_).substr(positions_[reader] - first_);
}

void Input::taken(std::size_t reader, std::size_t bytes) {
  positions_[reader] += bytes;
  drop_what_all_have();
}

void Input::leave(std::size_t reader) {
  reading_[reader] = false;
  drop_what_all_have();
}

bool Input::exhausted(std::size_t reader) const { return ended_ && positions_[reader] == last(); }

bool Input::wants_more() const {
  if (ended_) return false;
  bool somebody_waits = false;
  for (std::size_t reader = 0; reader < positions_.size(); ++reader) {
    if (!reading_[reader]) continue;
    if (last() - positions_[reader] >= kMostBehind) return false;
    somebody_waits = somebody_waits || positions_[reader] == last();
  }
  return somebody_waits;
}

/// Keeps the bytes while they are few in relation to the rest, because the rest is moved.
void Input::drop_what_all_have() {
  std::uint64_t slowest = last();
  for (std::size_t reader = 0; reader < positions_.size(); ++reader)
    if (reading_[reader]) slowest = std::min(slowest, positions_[reader]);
  const std::uint64_t taken = slowest - first_;
  if (2 * taken < bytes_.size()) return;
  bytes_.erase(0, taken);
  first_ = slowest;
}

bool at_a_terminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

bool in_the_background() {
  return ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp();
}

WindowSize terminal_size() {
  winsize window = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return {};
  return {window.ws_col, window.ws_row};
}

void resize(const Descriptor& terminal, WindowSize size) {
  winsize window = {};
  window.ws_col = size.columns;
  window.ws_row = size.rows;
  ::ioctl(terminal.get(), TIOCSWINSZ, &window);
}

RawKeys::RawKeys() {
  termios modes = {};
  if (::tcgetattr(STDIN_FILENO, &modes) != 0) return;
  before_ = modes;
  modes.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | IEXTEN | ISIG);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
}

RawKeys::~RawKeys() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

}  // namespace mccl::cli::launch
