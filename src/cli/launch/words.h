// Words for a POSIX shell.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mccl::cli::launch {

/// `word` in quotes, so that any POSIX shell reads back exactly its bytes; without them where none
/// are needed. NUL, which no argument can hold, is not allowed.
std::string shell_word(std::string_view word);

/// The words of a command line, quoted and with blanks between.
std::string command_line(std::span<const std::string> words);

}  // namespace mccl::cli::launch
