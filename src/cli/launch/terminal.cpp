#include "cli/launch/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace mccl::cli::launch {

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
