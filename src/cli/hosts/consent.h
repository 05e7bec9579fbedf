// Asks the user for consent before hosts are changed.
#pragma once

#include <string>

#include "cli/kit/watch.h"

namespace mccl::cli::hosts {

/// Prints `question` and reads a line from standard input. Returns true if the line is "y", "Y" or
/// "yes". Throws Error on a signal, or if standard input has ended. The latter error mentions
/// `flag`, which skips the question.
bool person_agrees(const std::string& question, const std::string& flag, Signals& signals);

}  // namespace mccl::cli::hosts
