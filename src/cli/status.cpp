// `mccl status`, and `mccl top`, which starts the live view that is written in Python
// (python/mccl/top.py).
#include <fmt/format.h>
#include <unistd.h>

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
#include "cli/kit/program.h"
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

/// `reports` must not be empty. Stores the worst health of the jobs in `worst`.
std::string survey_text(std::vector<RankReport> reports, const StatusFlags& flags, Health& worst) {
  std::string text;
  worst = Health::healthy;
  json raw = json::array();
  for (RankReport& each : reports) raw.push_back(std::move(each.raw));
  json findings = json::array();
  for (const JobReport& job : assess(std::move(reports), flags.stuck_after)) {
    worst = std::max(worst, job.health);
    for (const std::string& finding : job.findings) findings.push_back(finding);
    text += (text.empty() ? "" : "\n") + to_text(job);
  }
  if (!flags.json) return text;
  const json all = {{"health", name_of(worst)}, {"findings", findings}, {"ranks", std::move(raw)}};
  // With --follow, each survey is one line, because a script can split a stream into lines more
  // easily than into JSON documents.
  return flags.follow ? all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                      : cluster::dumped(all);
}

/// Returns kGood if all jobs of the last survey were healthy, else kFailed.
int run_status(const StatusFlags& flags) {
  std::vector<RankReport> reports = survey(flags.pid);
  if (reports.empty()) {
    throw InvalidArgument(
        "no rank of this user runs on this host; jobs of other users, and jobs of one rank, are "
        "not shown");
  }
  Health health = Health::healthy;
  while (!reports.empty()) {
    fmt::print("{}", survey_text(std::move(reports), flags, health));
    std::fflush(stdout);
    if (!flags.follow) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(*flags.follow));
    try {
      reports = survey(flags.pid);
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

namespace mccl::cli::top {
namespace {

constexpr double kShortestPause = 0.1;
constexpr double kLongestPause = 3600;

constexpr const char* kFooter =
    R"(A live view of the jobs of this user that have ranks on this host. For each rank it shows calls,
bytes sent and received per second, a history of the calls, the call that the rank is in, and the
ranks that it waits for. It shows what `mccl status --json --follow` prints.

Keys: s sorts by rank, by calls per second or by waiting time; f filters rows by words; l shows
links instead of ranks; d writes the flight record of the selected rank to a file; q ends.

The view needs Python with the package textual: pip install 'mccl-engine[top]'

Examples:
  mccl top                 all jobs of this user on this host
  mccl top 4711 --every 5  the job of process 4711, every five seconds

Exit status: 0 when the jobs or the user end the view, 2 no such job, or bad arguments.)";

struct TopFlags {
  std::optional<int> pid;
  double every = 1;
};

[[noreturn]] int run_top(const TopFlags& flags) {
  if (::isatty(STDOUT_FILENO) == 0)
    throw InvalidArgument(
        "mccl top needs a terminal as standard output; otherwise use mccl status --follow");
  std::vector<std::string> words = {"--program", this_program().string(), "--seconds",
                                    fmt::format("{}", flags.every)};
  if (flags.pid) words.push_back(std::to_string(*flags.pid));
  become_python("mccl top", "top", std::move(words));
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<TopFlags>();
  CLI::App* app = program.add_subcommand("top", "Watch running jobs in a terminal");
  app->footer(kFooter);
  add_value(*app, "pid PID", flags->pid, "Process ID of a rank on this host; default: all jobs",
            integer_between(1, 1 << 30));
  add_value(*app, "--every SECONDS", flags->every, "Time between two refreshes; default 1",
            number_between(kShortestPause, kLongestPause));
  return {app, [flags] { return run_top(*flags); }};
}

}  // namespace mccl::cli::top
