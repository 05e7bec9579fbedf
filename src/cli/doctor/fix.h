// Fixes the faults that can be fixed safely.
#pragma once

#include <string>

#include "cli/doctor/report.h"
#include "cli/hosts/session.h"
#include "cli/kit/watch.h"

namespace mccl::cli::doctor {

/// Shows the commands, asks on standard input unless `sure`, and runs them. Either all take effect
/// or none. Writes a script that undoes them. Returns true if something was changed. Throws Error
/// if a command fails.
bool fix_findings(const Report& report, const hosts::Reaching& reaching, Signals& signals,
                  bool sure);

}  // namespace mccl::cli::doctor
