#include "cli/doctor/fix.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "cli/hosts/setup_run.h"
#include "cli/launch/watch.h"
#include "mccl/error.h"

namespace mccl::cli::doctor {
namespace {

using cluster::Finding;
using cluster::SetupStep;

constexpr const char* kUndoScript = "mccl-doctor.undo.sh";

/// One for each finding that has a cure of its own, on a host where it may be run.
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

/// A line of standard input, or what there is of it; Ctrl-C ends the wait with an Error.
std::string line_of_person(launch::Signals& signals) {
  std::string line;
  for (bool more = true; more;) {
    launch::Watch watch;
    watch.on(STDIN_FILENO, POLLIN, [&] {
      char next = '\n';
      more = ::read(STDIN_FILENO, &next, 1) == 1 && next != '\n';
      if (more) line += next;
    });
    watch.on(signals.descriptor(), POLLIN, [&] {
      for (const int number : signals.take())
        if (number != SIGCHLD && number != SIGWINCH)
          throw Error(fmt::format("signal {} ({}) ended it; nothing was changed", number,
                                  ::strsignal(number)));
    });
    watch.wait();
  }
  return line;
}

bool person_agrees(launch::Signals& signals) {
  fmt::print(stderr, "Do it? [y/N] ");
  const std::string answer = line_of_person(signals);
  return answer == "y" || answer == "yes";
}

}  // namespace

bool fix_findings(const Report& report, const hosts::Reaching& reaching, launch::Signals& signals,
                  bool sure) {
  const std::vector<SetupStep> steps = steps_of(report);
  if (steps.empty()) {
    fmt::print(stderr, "mccl doctor: nothing can be cured from here\n");
    return false;
  }
  std::vector<hosts::Host> all;
  for (const hosts::Asked& asked : report.asked) all.push_back(asked.host);
  fmt::print(stderr, "These commands cure {} of the findings:\n", steps.size());
  for (const SetupStep& step : steps)
    fmt::print(stderr, "  on {}: {}\n", launch::text_of(all[static_cast<std::size_t>(step.host)]),
               step.command);
  if (!sure && !person_agrees(signals)) return false;
  const auto say = [](const std::string& text) { fmt::print(stderr, "mccl doctor: {}\n", text); };
  const std::string undo =
      hosts::write_undo_script(kUndoScript, hosts::undo_script(all, steps, reaching.ssh_arguments));
  say(fmt::format("sh {} undoes what follows", undo));
  const hosts::SetupResult result = hosts::run_setup(all, steps, reaching, signals, say);
  if (!result.fault.empty())
    throw Error(fmt::format("{}; {}", result.fault,
                            result.undone
                                ? "what was done before is undone"
                                : "not all could be undone: sh " + undo + " tries again"));
  return true;
}

}  // namespace mccl::cli::doctor
