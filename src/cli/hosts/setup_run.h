// Does what is to be done on the hosts, all of it or nothing.
#pragma once

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

/// Writes it where nothing is yet: to `path`, or beside it with a number. Returns where. Throws
/// Error when it cannot be written.
std::string write_undo_script(const std::string& path, const std::string& script);

struct SetupResult {
  std::string fault;  ///< Empty: all is done.
  /// What was done before the fault is undone. Not where a command never ended, or its connection
  /// was lost: nobody knows what became of it.
  bool undone = true;
};

/// Hosts work side by side, each step by step. `say` tells of each step.
SetupResult run_setup(std::span<const Host> hosts, std::span<const cluster::SetupStep> steps,
                      const Reaching& reaching, launch::Signals& signals,
                      const std::function<void(const std::string&)>& say);

}  // namespace mccl::cli::hosts
