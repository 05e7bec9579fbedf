// Passes the output of ranks to the launcher's own output and to log files, and standard input to
// ranks.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/wake_pipe.h"
#include "cli/kit/process.h"

namespace mccl::cli::launch {

/// Writes output on a thread of its own, in the order of the calls of write(), so that a blocked
/// write does not block the caller. Thread-safe.
class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(int descriptor, std::string text);
  /// Blocks until everything is written or writing has failed.
  void finish();
  /// True if producers should pause, because 4 MiB or more are queued.
  bool full() const;
  /// Wakes the caller when full() or lost_output() may have changed.
  WakePipe& room() { return room_; }
  /// A failed write. It ends all writing: later output is dropped.
  struct LostOutput {
    int descriptor = -1;
    int error = 0;  ///< errno; EPIPE if the reader has closed its end.
  };
  std::optional<LostOutput> lost_output() const;

 private:
  struct Piece {
    int descriptor = -1;
    std::string text;
  };

  void run();
  /// Returns 0, or the errno of a failed write.
  static int write_all(const Piece& piece);

  WakePipe room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> waiting_;  // Guarded by mutex_, as are the next three members.
  std::size_t waiting_bytes_ = 0;
  std::optional<LostOutput> lost_output_;
  bool ending_ = false;
  std::thread thread_;
};

/// Selects the lines that get the number of their rank as a prefix.
enum class Prefix {
  none,
  all,
  /// All lines, but on a terminal only once a second rank writes: prefixes would disturb a program
  /// that draws on the terminal.
  where_several_write,
};

struct ConsoleOptions {
  Prefix prefix = Prefix::where_several_write;
  bool colour = true;       ///< True if prefixes are coloured; applies to terminals only.
  bool timestamps = false;  ///< True if lines begin with the time of their arrival.
  /// Folder in which each job makes a folder for its log files. Empty: no log files.
  std::string log_folder;
};

enum class OutputStream { output, error };

class Console {
 public:
  /// `restarts` is the number of earlier starts of the job. Throws InvalidArgument if a log file
  /// cannot be created.
  Console(int ranks, const ConsoleOptions& options, int restarts);

  /// Writes whole lines, or the beginning of a line that must be shown now.
  void put(int rank, OutputStream stream, std::string_view text);
  /// Writes a message of the launcher to standard error, on lines of its own.
  void say(std::string text);
  /// True if the stream is a terminal, where unfinished lines are shown.
  bool shows_pieces(OutputStream stream) const { return sink(stream).is_terminal; }
  /// True if so much output is queued that the output of ranks should not be read now.
  bool full() const;
  std::optional<Writer::LostOutput> lost_output() const;
  std::string text_of(const Writer::LostOutput& lost) const;
  /// See Writer::finish(). Afterwards, only say_last() may be called.
  void finish();
  /// The job's own log folder. Empty if there are no log files.
  const std::string& log_folder() const { return log_folder_; }
  /// Writes a last message directly, because the threads of the Writers may be blocked. Drops the
  /// message if standard error accepts no output now.
  static void say_last(const std::string& text);
  /// Makes watch.wait() return when full() or lost_output() may have changed.
  void watch(Watch& watch) const;

 private:
  struct Sink {
    explicit Sink(int to) : descriptor(to), is_terminal(::isatty(to) == 1) {}

    const int descriptor;
    const bool is_terminal;
    Writer writer;
    /// Rank and stream of the unfinished line, if any.
    std::optional<std::pair<int, OutputStream>> open;
  };

  Sink& sink(OutputStream stream) const { return *sinks_[static_cast<std::size_t>(stream)]; }
  void open_files(int ranks, const std::string& folder, const std::string& name);
  void log(std::size_t rank, Writer& writer, std::string_view stamp, std::string_view text);
  /// True if lines of this rank get a prefix on this sink.
  bool marks(int rank, const Sink& to);

  /// Indexed by OutputStream. The same sink twice if standard output and error are the same file.
  std::array<std::shared_ptr<Sink>, 2> sinks_;
  const Prefix prefix_;
  const bool timestamps_;
  std::optional<int> only_writer_;     ///< Rank that last wrote to a terminal.
  bool several_write_ = false;         ///< True once several ranks have written to a terminal.
  std::vector<std::string> prefixes_;  ///< Prefix of each rank's lines, indexed by rank.
  std::string log_folder_;
  std::vector<Descriptor> files_;  ///< Log files, by rank.
  std::vector<bool> in_line_;      ///< True if the rank's log file ends in an unfinished line.
};

/// Character that a terminal interprets as the end of input (Ctrl-D).
inline constexpr char kEndOfInput = '\x04';

/// Copies standard input to several ranks, each of which reads at its own pace. Keeps one copy of
/// the bytes in memory.
class Input {
 public:
  /// The readers are numbered from 0 to `readers` - 1.
  explicit Input(std::size_t readers) : positions_(readers, 0), reading_(readers, true) {}

  /// If wants_more(), registers standard input with `watch`. In the background of the terminal,
  /// where reading would stop this process, only limits the wait, so that the caller checks again.
  void watch(Watch& watch, bool at_terminal);
  void add(std::string_view bytes);
  void end() { ended_ = true; }
  std::string_view pending(std::size_t reader) const;
  void taken(std::size_t reader, std::size_t bytes);
  /// Stops keeping input for a reader that has ended or wants no more input.
  void leave(std::size_t reader);
  bool reading(std::size_t reader) const { return reading_[reader]; }
  bool exhausted(std::size_t reader) const;
  /// True if some reader has taken all bytes so far, and no reader lags 64 MiB or more behind.
  bool wants_more() const;

 private:
  void read(bool at_terminal);
  void drop_what_all_have();

  std::uint64_t last() const { return first_ + bytes_.size(); }

  std::string bytes_;
  std::uint64_t first_ = 0;  ///< Position of the first byte of bytes_.
  std::vector<std::uint64_t> positions_;
  std::vector<bool> reading_;
  bool ended_ = false;
};

/// True if standard input and output are terminals.
bool at_a_terminal();
/// True if reading standard input would stop this process, because the terminal belongs to another
/// job of the shell.
bool in_the_background();
/// Size of the terminal at standard output; 80 columns and 24 rows if it is unknown.
winsize terminal_size();

/// While it exists, the terminal echoes nothing and passes every key, including Ctrl-C and Ctrl-D,
/// to the process that reads from it.
class RawKeys {
 public:
  RawKeys();
  ~RawKeys();
  RawKeys(const RawKeys&) = delete;
  RawKeys& operator=(const RawKeys&) = delete;

 private:
  std::optional<termios> before_;
};

}  // namespace mccl::cli::launch
