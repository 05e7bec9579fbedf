// Lines of text that are exchanged with a child process.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/process.h"
#include "cli/kit/watch.h"

namespace mccl::cli {

/// Returns the length of the longest prefix of `text` that does not end inside a UTF-8 character.
/// Bytes that are not valid UTF-8 count as characters.
std::size_t whole_characters(std::string_view text);

/// Holds bytes that have been read but not yet taken. Views are valid until the next call of
/// space().
class Lines {
 public:
  /// Maximum length of a line, in bytes. A longer line is taken in pieces of about this length, cut
  /// between characters.
  static constexpr std::size_t kLongest = std::size_t{4} << 20;

  /// Returns free space of at least 64 KiB to read into.
  std::span<char> space();
  /// Adds the first `bytes` bytes of that space to the contents.
  void filled(std::size_t bytes) { end_ += bytes; }
  /// Takes all complete lines with their line ends, or a piece of a line that is too long.
  std::string_view take_lines();
  /// Takes everything up to the last whole character, in order to show a line before it ends.
  std::string_view take_characters();
  /// Takes everything that is left.
  std::string_view take_rest();
  bool empty() const { return begin_ == end_; }

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest() const { return {bytes_.data() + begin_, end_ - begin_}; }

  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  ///< Bytes after begin_ that are known to hold no line end.
};

/// Calls `visit` for each line of `lines`, without its line end.
template <typename Visit>
void each_line(std::string_view lines, Visit&& visit) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    visit(lines.substr(0, end));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
}

/// Appends `lines` to `to`, with `prefix` before each line. Adds no line end if the last line has
/// none.
void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines);

/// A child process that is sent text and answers in lines, such as a remote shell. It must stay in
/// its place while it is registered with a Watch.
class Dialogue {
 public:
  using Hear = std::function<void(std::string_view line)>;

  /// `hear` receives each line of standard output, without its line end. `end` is called when
  /// standard output has ended. Neither may destroy this object.
  explicit Dialogue(Hear hear, std::function<void()> end = {})
      : hear_(std::move(hear)), end_(std::move(end)) {}

  /// Continues with a new process, and forgets what the old one has said and was sent.
  void begin(Process process);
  void watch(Watch& watch);
  /// Sends the text as soon as the process takes it. Drops it if the process reads no more.
  void tell(std::string_view text);
  /// Closes the process's input once all text has been sent.
  void tell_no_more();
  bool has_unsent() const { return !unsent_.empty(); }
  /// Reads and handles what the process has sent. Returns false if nothing has arrived.
  bool read();
  /// Returns how the process ended, or nothing if it runs or there is none. Once it has ended, all
  /// that it wrote has been read, and there is no process.
  std::optional<Exit> reap();
  /// Sends the signal to the process, if there is one.
  void end(int signal) const;

  /// Id of the process; -1 if there is none.
  pid_t id() const { return process_.id; }
  bool output_ended() const { return process_.output.get() < 0; }
  /// The first 8 KiB of standard error.
  const std::string& complaint() const { return complaint_; }
  /// Reads the rest of standard error, as far as it has arrived.
  void read_complaint();

 private:
  void send();
  void read_error();

  Hear hear_;
  std::function<void()> end_;
  Process process_;
  Lines said_;
  std::string complaint_;
  std::string unsent_;
  bool no_more_ = false;
};

}  // namespace mccl::cli
