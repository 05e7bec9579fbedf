// Words for a POSIX shell.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// `word` in quotes, so that any POSIX shell reads back exactly its bytes; without them where none
/// are needed. NUL, which no argument can hold, is not allowed.
std::string shell_word(std::string_view word);

/// The words of a command line, quoted and with blanks between.
std::string command_line(std::span<const std::string> words);

/// The words that a POSIX shell would read in `text`, which has quotes and backslashes but nothing
/// else that is special. Throws InvalidArgument, beginning with `where`, for a quote that nothing
/// closes.
std::vector<std::string> split_words(std::string_view where, std::string_view text);

}  // namespace mccl::cli::launch
