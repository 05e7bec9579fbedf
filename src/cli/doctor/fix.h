// Cures what can be cured safely.
#pragma once

#include <string>

#include "cli/doctor/report.h"
#include "cli/hosts/session.h"
#include "cli/launch/signals.h"

namespace mccl::cli::doctor {

/// Shows what it would do, asks on standard input unless `sure`, and does it: all or nothing, with
/// a script that undoes it. True when something was changed. Throws Error when that fails.
bool fix_findings(const Report& report, const hosts::Reaching& reaching, launch::Signals& signals,
                  bool sure);

}  // namespace mccl::cli::doctor
