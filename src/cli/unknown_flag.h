// Flags that a command does not know.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

#include "cli/command.h"

namespace mccl::cli {

/// What to say of the first of `words`, the arguments of `command`, that looks like a flag and is
/// none of its; with what `other_names` has for it, or the nearest that is. Empty when there is no
/// such word.
std::string unknown_flag(const CLI::App& command, std::span<const char* const> words,
                         std::span<const OtherName> other_names = {});

}  // namespace mccl::cli
