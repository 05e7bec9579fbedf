// Asks the user for consent before hosts are changed, and writes the script that undoes the
// changes.
#pragma once

#include <string>

#include "cli/hosts/setup_run.h"
#include "cli/kit/watch.h"

namespace mccl::cli::hosts {

/// Asks for consent to the commands, which the caller has printed, unless `sure`. Then writes a
/// script that undoes the steps, to `undo_path` or to a numbered path beside it if that exists.
/// Returns the script's path; empty if the user does not agree. Throws Error on a signal, if
/// standard input has ended, or if the script cannot be written.
std::string agree_to(const SetupPlan& plan, const std::string& undo_path, bool sure,
                     const Reaching& reaching, Signals& signals, const Say& say);

}  // namespace mccl::cli::hosts
