#include "cli/launch/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/thread.h"
#include "base/value_text.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/quantity.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

/// ANSI codes of cyan, green, yellow, blue, magenta and red.
constexpr std::array kColours = {36, 32, 33, 34, 35, 31};

std::string prefix_of(int rank, int ranks, bool colour) {
  const std::size_t width = std::to_string(ranks - 1).size();
  const std::string text = fmt::format("[{:>{}}]", rank, width);
  if (!colour) return text + " ";
  return fmt::format("\x1b[{}m{}\x1b[0m ",
                     kColours[static_cast<std::size_t>(rank) % kColours.size()], text);
}

std::string stamp_of_now() {
  const auto now = std::chrono::system_clock::now();
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("{}.{:03} ", local_time_text(now, "%H:%M:%S"), since.count() % 1000);
}

/// Removes the rest of a line whose beginning has been written from `text`, and returns it.
std::string_view take_end_of_line(std::string_view& text) {
  const std::string_view end = text.substr(0, text.find('\n') + 1);
  const std::string_view taken = end.empty() ? text : end;
  text.remove_prefix(taken.size());
  return taken;
}

std::string path_of_file(const std::string& folder, std::size_t rank) {
  return fmt::format("{}/rank-{}.log", folder, rank);
}

bool same_file(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

constexpr std::size_t kMostWaiting = std::size_t{4} << 20;

/// A rank that reads its input more slowly delays other ranks only beyond this limit.
constexpr std::uint64_t kMostBehind = std::uint64_t{64} << 20;
constexpr std::chrono::seconds kBetweenLooksAtTerminal{1};

}  // namespace

Writer::Writer() {
  thread_ = start_thread("mccl writer", [this] { run(); });
}

Writer::~Writer() { finish(); }

void Writer::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Writer::write(int descriptor, std::string text) {
  if (text.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (lost_output_) return;
    waiting_bytes_ += text.size();
    waiting_.push_back({descriptor, std::move(text)});
  }
  changed_.notify_one();
}

bool Writer::full() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ >= kMostWaiting;
}

std::optional<Writer::LostOutput> Writer::lost_output() const {
  const std::lock_guard lock(mutex_);
  return lost_output_;
}

void Writer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::vector<Piece> pieces = std::exchange(waiting_, {});
    for (const Piece& piece : pieces) {
      if (!lost_output_) {
        lock.unlock();
        const int error = write_all(piece);
        lock.lock();
        if (error != 0) lost_output_ = LostOutput{piece.descriptor, error};
      }
      waiting_bytes_ -= piece.text.size();
    }
    room_.wake();
  }
}

int Writer::write_all(const Piece& piece) {
  std::string_view left = piece.text;
  while (!left.empty()) {
    const ssize_t n = ::write(piece.descriptor, left.data(), left.size());
    if (n > 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd entry = {piece.descriptor, POLLOUT, 0};
      ::poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Console::Console(int ranks, const ConsoleOptions& options, int restarts)
    : prefix_(options.prefix), timestamps_(options.timestamps) {
  sinks_[0] = std::make_shared<Sink>(STDOUT_FILENO);
  sinks_[1] =
      same_file(STDOUT_FILENO, STDERR_FILENO) ? sinks_[0] : std::make_shared<Sink>(STDERR_FILENO);
  prefixes_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    prefixes_[static_cast<std::size_t>(rank)] =
        prefix_of(rank, ranks, options.colour && sinks_[0]->is_terminal);
  if (options.log_folder.empty()) return;
  open_files(
      ranks, options.log_folder,
      fmt::format("{}-{}{}", local_time_text(std::chrono::system_clock::now(), "%Y%m%d-%H%M%S"),
                  ::getpid(), restarts > 0 ? fmt::format("-restart-{}", restarts) : ""));
}

void Console::open_files(int ranks, const std::string& folder, const std::string& name) {
  log_folder_ = fmt::format("{}/{}", folder, name);
  std::error_code error;
  std::filesystem::create_directories(log_folder_, error);
  // The link "latest" is replaced atomically, so that it exists at all times.
  const std::string link = log_folder_ + "/latest";
  std::error_code ignored;
  std::filesystem::create_symlink(name, link, ignored);
  std::filesystem::rename(link, folder + "/latest", ignored);
  in_line_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = path_of_file(log_folder_, static_cast<std::size_t>(rank));
    files_.emplace_back(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (files_.back().get() < 0) {
      throw InvalidArgument(fmt::format("--log-dir: cannot write {}: {}", printable(path),
                                        std::strerror(error ? error.value() : errno)));
    }
  }
}

bool Console::marks(int rank, const Sink& to) {
  if (prefix_ != Prefix::where_several_write || !to.is_terminal) return prefix_ != Prefix::none;
  several_write_ = several_write_ || only_writer_.value_or(rank) != rank;
  only_writer_ = rank;
  return several_write_;
}

void Console::log(std::size_t rank, Writer& writer, std::string_view stamp, std::string_view text) {
  std::string logged;
  const bool ends = text.back() == '\n';
  if (in_line_[rank]) logged = take_end_of_line(text);
  append_with_prefix(logged, stamp, text);
  in_line_[rank] = !ends;
  writer.write(files_[rank].get(), std::move(logged));
}

void Console::put(int rank, OutputStream stream, std::string_view text) {
  if (text.empty()) return;
  Sink& to = sink(stream);
  const auto index = static_cast<std::size_t>(rank);
  const std::string stamp = timestamps_ ? stamp_of_now() : "";
  if (!files_.empty()) log(index, to.writer, stamp, text);
  const std::string mark = marks(rank, to) ? stamp + prefixes_[index] : stamp;
  const std::pair source{rank, stream};
  std::string shown;
  shown.reserve(text.size() + text.size() / 4 + 64);
  std::string_view rest = text;
  if (to.open == source) {
    shown += take_end_of_line(rest);
  } else if (to.open) {
    shown += '\n';
  }
  if (mark.empty()) {
    shown += rest;
  } else {
    append_with_prefix(shown, mark, rest);
  }
  to.open.reset();
  if (text.back() != '\n') to.open = source;
  to.writer.write(to.descriptor, std::move(shown));
}

void Console::say(std::string text) {
  Sink& to = sink(OutputStream::error);
  if (to.open) text = fmt::format("\n{}", text);
  to.open.reset();
  to.writer.write(STDERR_FILENO, std::move(text));
}

bool Console::full() const { return sinks_[0]->writer.full() || sinks_[1]->writer.full(); }

void Console::finish() {
  for (const auto& sink : sinks_) sink->writer.finish();
}

std::optional<Writer::LostOutput> Console::lost_output() const {
  const auto first = sinks_[0]->writer.lost_output();
  return first ? first : sinks_[1]->writer.lost_output();
}

std::string Console::text_of(const Writer::LostOutput& lost) const {
  std::string name = lost.descriptor == STDOUT_FILENO ? "standard output" : "standard error";
  for (std::size_t rank = 0; rank < files_.size(); ++rank)
    if (files_[rank].get() == lost.descriptor) name = printable(path_of_file(log_folder_, rank));
  return fmt::format("cannot write {}: {}", name, std::strerror(lost.error));
}

void Console::say_last(const std::string& text) {
  pollfd entry = {STDERR_FILENO, POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) return;
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

void Console::watch(Watch& watch) const {
  for (const auto& sink : sinks_) {
    WakePipe& room = sink->writer.room();
    watch.on(room.descriptor(), POLLIN, [&room] { room.drain(); });
  }
}

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
    // Ctrl-D ends this read but does not close the terminal, so Ctrl-D is passed on to the ranks.
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

/// Waits until half of all bytes can be removed, because the rest must be moved.
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

winsize terminal_size() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size;
  size.ws_row = 24;
  size.ws_col = 80;
  return size;
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
