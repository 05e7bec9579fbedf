// The arguments of a command: where they end, and messages about wrong ones.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string>

#include "cli/command.h"

namespace mccl::cli {

using Words = std::span<const char* const>;

/// Returns one line about an error in parsing `words`, the arguments of `command`. It is the
/// parser's own message, or suggests the nearest flag if the command does not know one.
std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, Words words,
                         std::span<const OtherName> other_names = {});

/// Returns the index in `words`, the arguments of `command`, of the first word that is neither one
/// of its flags nor the value of one. Returns the number of words if there is none. A "--" ends the
/// flags and counts as a flag.
std::size_t end_of_flags(const CLI::App& command, Words words);

}  // namespace mccl::cli
