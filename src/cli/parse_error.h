// The arguments of a command: where they end, and what to say of wrong ones.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string>

#include "cli/command.h"

namespace mccl::cli {

using Words = std::span<const char* const>;

/// One line for an error that parsing `words`, the arguments of `command`, ended with: the parser's
/// own message, or the nearest flag for one that the command does not know.
std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, Words words,
                         std::span<const OtherName> other_names = {});

/// The index in `words`, the arguments of `command`, of the first that is neither one of its flags
/// nor the value of one; their number when there is none. A "--" ends the flags and counts as one.
std::size_t end_of_flags(const CLI::App& command, Words words);

}  // namespace mccl::cli
