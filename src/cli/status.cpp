#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/sight/report.h"
#include "cli/sight/survey.h"
#include "cluster/finding.h"
#include "mccl/error.h"

namespace mccl::cli::status {
namespace {

using nlohmann::json;
using namespace sight;

constexpr double kStuckAfter = 10;
constexpr double kShortestPause = 0.1;
constexpr double kYear = 31536000;

constexpr const char* kFooter =
    R"(Shows the jobs of this user that have ranks on this host: for each rank its calls, the call that
it is in now, and the ranks that it waits for. A rank on this host asks the ranks on other hosts
over the job's own connections. The ranks compute their status only when this command asks for it.

A job is stuck if a call has made no progress for --stuck-after seconds, or if a rank does not
answer or falls silent. It has failed if a group has failed or a rank is lost.

Examples:
  mccl status                        all jobs of this user on this host
  mccl status 4711                   the job of process 4711
  mccl status --json                 the same for scripts
  mccl status --json --follow 1      one line of JSON each second, until the jobs end
  mccl status --stuck-after 60 || restart-the-job

Exit status: 0 healthy, 1 stuck or failed, 2 no such job, or bad arguments.)";

struct StatusFlags {
  std::optional<int> pid;
  double stuck_after = kStuckAfter;
  std::optional<double> follow;  ///< Seconds between two surveys; empty: make only one.
  bool json = false;
};

/// The text of one survey, and the worst health of the jobs.
struct Shown {
  std::string text;
  Health health = Health::healthy;
};

/// Formats one survey. `answers` must not be empty.
Shown shown(std::vector<RankAnswer> answers, const StatusFlags& flags) {
  Shown shown;
  std::vector<RankReport> reports;
  json raw = json::array();
  for (RankAnswer& each : answers) {
    reports.push_back(std::move(each.report));
    raw.push_back(std::move(each.raw));
  }
  json findings = json::array();
  for (const JobReport& job : assess(std::move(reports), flags.stuck_after)) {
    shown.health = std::max(shown.health, job.health);
    for (const std::string& finding : job.findings) findings.push_back(finding);
    shown.text += (shown.text.empty() ? "" : "\n") + to_text(job);
  }
  if (!flags.json) return shown;
  const json all = {
      {"health", name_of(shown.health)}, {"findings", findings}, {"ranks", std::move(raw)}};
  // With --follow, each survey is one line, because a script can split a stream into lines more
  // easily than into JSON documents.
  shown.text = flags.follow ? all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                            : cluster::dumped(all);
  return shown;
}

/// Prints one survey or, with --follow, surveys until no rank is left. Returns kGood if all jobs of
/// the last survey were healthy, else kFailed.
int run_status(const StatusFlags& flags) {
  std::vector<RankAnswer> answers = survey(flags.pid);
  if (answers.empty()) {
    throw InvalidArgument(
        "no rank of this user runs on this host; jobs of other users, and jobs of one rank, are "
        "not shown");
  }
  Health health = Health::healthy;
  while (!answers.empty()) {
    const Shown now = shown(std::move(answers), flags);
    health = now.health;
    fmt::print("{}", now.text);
    std::fflush(stdout);
    if (!flags.follow) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(*flags.follow));
    try {
      answers = survey(flags.pid);
    } catch (const InvalidArgument&) {
      break;  // survey() throws this once the process `flags.pid` has ended.
    }
  }
  return health == Health::healthy ? kGood : kFailed;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = program.add_subcommand(
      "status", "Show running jobs, and the ranks that their calls wait for");
  app->footer(kFooter);
  add_value(*app, "pid PID", flags->pid, "Process ID of a rank on this host; default: all jobs",
            integer_between(1, 1 << 30));
  add_value(
      *app, "--stuck-after SECONDS", flags->stuck_after,
      fmt::format("Time without progress after which a call is stuck; default {}", kStuckAfter),
      number_between(0, kYear));
  add_value(*app, "--follow SECONDS", flags->follow,
            "Show the status again after this time, until the jobs end",
            number_between(kShortestPause, kYear));
  app->add_flag("--json", flags->json, "Print JSON; with --follow, one line each time");
  return {app, [flags] { return run_status(*flags); }};
}

}  // namespace mccl::cli::status
