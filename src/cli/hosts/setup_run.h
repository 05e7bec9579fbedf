// Changes the set-up of hosts. If a step fails, the completed steps are undone, and no step can
// lock the operator out.
//
// Before the first step, each host starts a guard: a process that undoes the steps of this host if
// the session does not confirm them in time. After the last step, the session confirms all steps
// over new connections. If a step cuts a host off, the guard of that host undoes the step.
#pragma once

#include <chrono>
#include <set>
#include <span>
#include <string>

#include "cli/hosts/inquiry.h"
#include "cli/kit/process.h"
#include "cluster/setup.h"

namespace mccl::cli::hosts {

struct SetupResult {
  std::string fault;  ///< The reason why the set-up failed; empty if it succeeded.
  /// True if all completed steps are undone. False if the outcome of a step is unknown.
  bool undone = true;
  std::set<std::string> alone;  ///< Unreachable hosts, whose guards undo their steps.
};

/// `undo` is the path of the undo script.
std::string text_of(const SetupResult& result, const std::string& undo);

/// Throws Error if a host has an earlier set-up that its guard will undo.
void refuse_unconfirmed(std::span<const cluster::HostFacts> hosts);

/// A set-up to carry out: the steps, and the hosts that they belong to.
struct SetupPlan {
  std::span<const Host> hosts;
  std::span<const cluster::SetupStep> steps;
  /// If a host receives no message for this time, its guard undoes its steps.
  std::chrono::seconds revert_after{30};
};

/// Asks the user whether to run the commands, which the caller has printed, unless `sure`. Then
/// writes a script that undoes the steps, to `undo_path`, or to a numbered path beside it if that
/// file exists. Returns the script's path; empty if the user does not agree.
std::string agree_to(const SetupPlan& plan, const std::string& undo_path, bool sure,
                     const Reaching& reaching, Signals& signals, const Say& say);

/// Carries out the steps, in parallel on all hosts. `say` reports each step.
SetupResult run_setup(const SetupPlan& plan, const Reaching& reaching, Signals& signals,
                      const Say& say);

}  // namespace mccl::cli::hosts
