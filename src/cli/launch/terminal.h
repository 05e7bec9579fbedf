// The user's terminal.
#pragma once

#include <termios.h>

#include <optional>

#include "cli/launch/process.h"

namespace mccl::cli::launch {

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
