// Quotes and splits words for a POSIX shell.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli {

/// Quotes `word` so that any POSIX shell reads back exactly its bytes. Adds no quotes where none
/// are needed. `word` must not contain NUL, which no argument can hold.
std::string shell_word(std::string_view word);

/// Returns a command line of these words, quoted and separated by blanks.
std::string command_line(std::span<const std::string> words);

/// Splits `text` into words as a POSIX shell would. Quotes and backslashes are the only special
/// characters. Throws InvalidArgument if a quote is not closed; the message begins with `where`.
std::vector<std::string> split_words(std::string_view where, std::string_view text);

}  // namespace mccl::cli
