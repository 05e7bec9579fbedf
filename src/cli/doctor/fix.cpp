#include "cli/doctor/fix.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/hosts/consent.h"
#include "cli/hosts/setup_run.h"
#include "mccl/error.h"

namespace mccl::cli::doctor {
namespace {

using cluster::Finding;
using cluster::SetupStep;

constexpr const char* kUndoScript = "mccl-doctor.undo.sh";

/// Returns a step for each finding that a command can fix, if the command may be run on its host.
std::vector<SetupStep> steps_of(const Report& report) {
  std::vector<SetupStep> steps;
  for (const Finding& finding : report.findings) {
    for (std::size_t i = 0; i < report.asked.size() && !finding.fix.empty(); ++i) {
      const cluster::HostFacts& facts = report.asked[i].facts;
      if (facts.host != finding.where || !(facts.is_root || facts.has_sudo)) continue;
      const std::string sudo = facts.is_root ? "" : "sudo ";
      steps.push_back({static_cast<int>(i), sudo + finding.fix, sudo + finding.undo});
      break;
    }
  }
  return steps;
}

}  // namespace

bool fix_findings(const Report& report, const hosts::Reaching& reaching, Signals& signals,
                  bool sure) {
  const std::vector<SetupStep> steps = steps_of(report);
  if (steps.empty()) {
    fmt::print(stderr, "mccl doctor: no finding can be cured automatically\n");
    return false;
  }
  std::vector<Host> all;
  for (const hosts::Asked& asked : report.asked) hosts::refuse_unconfirmed({&asked.facts, 1});
  for (const hosts::Asked& asked : report.asked) all.push_back(asked.host);
  fmt::print(stderr, "These commands cure {} of the findings:\n", steps.size());
  for (const SetupStep& step : steps)
    fmt::print(stderr, "  on {}: {}\n", text_of(all[static_cast<std::size_t>(step.host)]),
               step.command);
  if (!sure && !hosts::person_agrees("Run these commands?", "--yes", signals)) return false;
  const auto say = [](const std::string& text) { fmt::print(stderr, "mccl doctor: {}\n", text); };
  const std::string undo =
      hosts::write_undo_script(kUndoScript, hosts::undo_script(all, steps, reaching.ssh_arguments));
  say(fmt::format("sh {} undoes the following changes", undo));
  const hosts::SetupResult result =
      hosts::run_setup({.hosts = all, .steps = steps}, reaching, signals, say);
  if (!result.fault.empty()) throw Error(text_of(result, undo));
  return true;
}

}  // namespace mccl::cli::doctor
