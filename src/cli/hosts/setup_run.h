// Changes the set-up of hosts: all steps or none, and none that locks the operator out.
//
// Before the first step, each host starts a guard: a process that undoes the steps of this host
// unless it is told within some seconds that they are good. After the last step, the hosts are told
// so over new connections. If a step cuts a host off, that host undoes it by itself.
#pragma once

#include <chrono>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/hosts/session.h"
#include "cli/launch/signals.h"
#include "cluster/setup.h"

namespace mccl::cli::hosts {

/// A script for a person that undoes the steps, last first.
std::string undo_script(std::span<const Host> hosts, std::span<const cluster::SetupStep> steps,
                        const std::vector<std::string>& ssh_arguments);

/// Writes the script to `path`, or, where that exists, to a numbered path beside it. Returns the
/// path. Throws Error when it cannot be written.
std::string write_undo_script(const std::string& path, const std::string& script);

struct SetupResult {
  std::string fault;  ///< Empty: all is done.
  /// What was done before the fault is undone. Not where a command never ended, or its connection
  /// was lost: nobody knows what became of it.
  bool undone = true;
  std::set<std::string> alone;  ///< Hosts that cannot be reached, and undo their steps themselves.
};

/// What did not succeed, and what became of the rest; `undo` is the path of the undo script.
std::string text_of(const SetupResult& result, const std::string& undo);

/// Throws Error where a guard still waits, since its pending undo would be overlooked.
void refuse_unconfirmed(std::span<const cluster::HostFacts> hosts);

/// How steps are carried out.
struct SetupPlan {
  std::span<const Host> hosts;
  std::span<const cluster::SetupStep> steps;
  /// A host that hears nothing for so long undoes its steps.
  std::chrono::seconds revert_after{30};
};

/// Hosts work side by side, each step by step. `say` tells of each step.
SetupResult run_setup(const SetupPlan& plan, const Reaching& reaching, launch::Signals& signals,
                      const std::function<void(const std::string&)>& say);

}  // namespace mccl::cli::hosts
