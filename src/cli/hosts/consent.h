// Asks the person at the terminal before hosts are changed.
#pragma once

#include <string>

#include "cli/launch/signals.h"

namespace mccl::cli::hosts {

/// Prints `question` and reads a line from standard input; returns whether it says yes. Throws
/// Error on a signal, and where standard input has ended; that error names `flag`, which skips the
/// question.
bool person_agrees(const std::string& question, const std::string& flag, launch::Signals& signals);

}  // namespace mccl::cli::hosts
