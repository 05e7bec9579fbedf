// The terminal that a person sits at.
#pragma once

#include <termios.h>

#include <optional>

#include "cli/launch/process.h"

namespace mccl::cli::launch {

/// Whether a person sits at standard input and output.
bool at_a_terminal();
/// Whether reading standard input would stop this process: it is a terminal that belongs to another
/// job of the shell.
bool in_the_background();
WindowSize terminal_size();
void resize(const Descriptor& terminal, WindowSize size);

/// While it lives, every key goes to whoever reads, Ctrl-C and Ctrl-D among them, and nothing is
/// shown but what is written.
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
