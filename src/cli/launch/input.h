// Standard input of the ranks, and the user's terminal.
#pragma once

#include <termios.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/process.h"
#include "cli/kit/watch.h"

namespace mccl::cli::launch {

/// Character that a terminal interprets as the end of input (Ctrl-D).
inline constexpr char kEndOfInput = '\x04';

/// Distributes standard input to several ranks, each at its own pace. The bytes are held in memory
/// only once.
class Input {
 public:
  /// The readers are numbered from 0 to `readers` - 1.
  explicit Input(std::size_t readers) : positions_(readers, 0), reading_(readers, true) {}

  /// Registers standard input with `watch` if a reader wants more, unless this process may not read
  /// it now, because it is in the background of its terminal. `at_terminal`: input is a terminal.
  void watch(Watch& watch, bool at_terminal);
  void add(std::string_view bytes);
  /// Called when nothing more will be added.
  void end() { ended_ = true; }
  /// Returns the bytes that the reader has not taken yet.
  std::string_view pending(std::size_t reader) const;
  void taken(std::size_t reader, std::size_t bytes);
  /// Called when the reader has ended or wants no more input.
  void leave(std::size_t reader);
  bool reading(std::size_t reader) const { return reading_[reader]; }
  /// True if the input has ended and the reader has taken all of it.
  bool exhausted(std::size_t reader) const;
  /// True if some reader has taken all bytes and no reader lags far behind.
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
WindowSize terminal_size();
void resize(const Descriptor& terminal, WindowSize size);

/// While an object lives, the terminal passes every key to the reader, including Ctrl-C and Ctrl-D,
/// and echoes nothing.
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
