// Where the flags of a command end and another program's own words begin.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string_view>

namespace mccl::cli {

/// Whether the value of the flag that `word` is, is the word after it: not in --flag=value, nor in
/// -fvalue.
bool next_is_value(const CLI::App& command, std::string_view word);

/// The index in `words`, which follow the name of `command`, of the first that is neither one of
/// its flags nor the value of one; their number when there is none. A "--" ends the flags and
/// counts as one.
std::size_t end_of_flags(const CLI::App& command, std::span<const char* const> words);

}  // namespace mccl::cli
