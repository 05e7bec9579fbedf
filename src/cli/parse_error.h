// What the parser of the command line complains of, in the words of the other errors.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace mccl::cli {

/// One line for an error that parsing `words`, the arguments of `command`, ended with. It calls a
/// flag by that of its names that is among the words.
std::string complaint_of(const CLI::ParseError& error, const CLI::App& command,
                         std::span<const char* const> words);

}  // namespace mccl::cli
