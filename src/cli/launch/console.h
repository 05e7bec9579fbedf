// What the ranks write, on its way to the launcher's own output and to files.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/launch/watch.h"
#include "cli/launch/writer.h"

namespace mccl::cli::launch {

/// Which lines begin with the number of their rank.
enum class Prefix {
  none,
  all,
  /// All, but on a terminal none until a second rank writes: a program of which one rank alone
  /// writes may draw there.
  where_several_write,
};

struct ConsoleOptions {
  Prefix prefix = Prefix::where_several_write;
  bool colour = true;       ///< Where it goes to a terminal.
  bool timestamps = false;  ///< Lines begin with the time at which they came.
  /// Each job makes a folder of its own there, to which the link "latest" leads. Empty: no files.
  std::string log_folder;
};

enum class Stream { output, error };

class Console {
 public:
  /// Throws InvalidArgument when a file cannot be made.
  Console(int ranks, const ConsoleOptions& options);

  /// Whole lines, or a piece of one that somebody is to see now. A line that another rank has left
  /// open is ended before.
  void put(int rank, Stream stream, std::string_view text);
  /// Of the launcher itself; on standard error, on lines of their own.
  void say(std::string text);
  /// Whether there is a terminal, where a line is shown before it ends.
  bool shows_pieces(Stream stream) const { return sink(stream).is_terminal; }
  /// Whether so much waits to be written that ranks should be read no further.
  bool full() const;
  /// Output that could not be written, and none after it will be.
  struct LostOutput {
    std::string text;        ///< For people: where, and why.
    bool no_reader = false;  ///< Who read it has gone, as `head` does when it has enough.
  };
  std::optional<LostOutput> lost_output() const;
  /// Waits until all is written that can be; nothing may follow but say_last.
  void finish();
  /// The job's own; empty where there are no files.
  const std::string& log_folder() const { return log_folder_; }
  /// The last word, past writers that may be broken. Without waiting for them.
  static void say_last(const std::string& text);
  /// Waits until full() or lost_output() may have changed.
  void watch(Watch& watch) const;

 private:
  struct Sink {
    int descriptor = -1;
    bool is_terminal = false;
    std::shared_ptr<Writer> writer;
    std::optional<std::pair<int, Stream>> open;  ///< Whose line has not ended.
  };

  Sink& sink(Stream stream) { return sinks_[one_sink_ ? 0 : static_cast<std::size_t>(stream)]; }
  const Sink& sink(Stream stream) const { return const_cast<Console*>(this)->sink(stream); }
  void open_files(int ranks, const std::string& folder);
  std::string name_of(int descriptor) const;
  void log(std::size_t rank, Writer& writer, std::string_view stamp, std::string_view text);
  /// Whether what this rank writes there gets a prefix.
  bool marks(int rank, const Sink& to);

  std::array<Sink, 2> sinks_;
  bool one_sink_ = false;  ///< Standard output and error are the same file.
  const Prefix prefix_;
  const bool timestamps_;
  std::optional<int> only_writer_;  ///< So far; of a terminal.
  bool several_write_ = false;
  std::vector<std::string> prefixes_;  ///< By rank; plain or coloured.
  std::string log_folder_;
  std::vector<Descriptor> files_;  ///< By rank; none without a folder.
  std::vector<bool> in_line_;      ///< By rank: its file ends amid a line.
};

}  // namespace mccl::cli::launch
