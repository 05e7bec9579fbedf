#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/sight/attach.h"
#include "cli/sight/report.h"
#include "cluster/finding.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::status {
namespace {

using nlohmann::json;
using namespace sight;

constexpr double kStuckAfter = 10;
constexpr double kYear = 31536000;

constexpr const char* kFooter =
    R"(Shows the jobs of this user whose ranks run on this host: for each rank its calls, the call that
it is in now, and the ranks that it waits for. Ranks on other hosts are shown as the ranks here see
them. The ranks compute their status only when this command asks for it.

A job is stuck if a call has made no progress for --stuck-after seconds, or if a rank does not
answer or falls silent. It has failed if a group has failed or a rank is lost.

Examples:
  mccl status                        all jobs of this user on this host
  mccl status 4711                   the job of process 4711
  mccl status --json                 the same for scripts
  mccl status --stuck-after 60 || restart-the-job

Exit status: 0 healthy, 1 stuck or failed, 2 no such job, or bad arguments.)";

struct StatusFlags {
  std::optional<int> pid;
  double stuck_after = kStuckAfter;
  bool json = false;
};

/// The answer of a rank, parsed and in its original form.
struct StatusAnswer {
  RankReport report;
  json raw;
};

/// Asks a rank for its status. Returns nothing if the rank has ended. Takes the job from the name
/// of the socket, so that a rank that does not answer is shown with the other ranks of its job.
std::optional<StatusAnswer> ask_for_status(const RankSocket& socket) {
  const std::string who = fmt::format("rank {} (process {})", socket.rank, socket.pid);
  StatusAnswer answer;
  try {
    const std::string text = ask(socket, node::kRequestStatus);
    answer = {parse_status(text, who), json::parse(text)};
  } catch (const RankGone&) {
    return std::nullopt;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    answer.report.trouble = message.substr(message.starts_with(who + " ") ? who.size() + 1 : 0);
    answer.report.rank = socket.rank;
    answer.report.pid = socket.pid;
    answer.raw = {{"rank", socket.rank}, {"pid", socket.pid}, {"error", message}};
  }
  answer.report.job = socket.job;
  return answer;
}

/// Asks all ranks in parallel, because a rank that does not answer takes 2 s.
std::vector<StatusAnswer> ask_all(const std::vector<RankSocket>& sockets) {
  std::vector<std::future<std::optional<StatusAnswer>>> asked;
  for (const RankSocket& socket : sockets)
    asked.push_back(std::async(std::launch::async, ask_for_status, std::cref(socket)));
  std::vector<StatusAnswer> answers;
  for (auto& each : asked)
    if (std::optional<StatusAnswer> answer = each.get()) answers.push_back(*std::move(answer));
  return answers;
}

/// Removes the answers of all jobs in which the process has no rank.
void keep_jobs_of(pid_t pid, std::vector<StatusAnswer>& answers) {
  std::vector<std::string> jobs;
  for (const StatusAnswer& each : answers)
    if (each.report.pid == pid) jobs.push_back(each.report.job);
  std::erase_if(answers, [&](const StatusAnswer& each) {
    return std::ranges::find(jobs, each.report.job) == jobs.end();
  });
}

int run_status(const StatusFlags& flags) {
  if (flags.pid) static_cast<void>(ranks_of(*flags.pid));  // Throws if the process has no rank.
  std::vector<StatusAnswer> answers = ask_all(find_ranks());
  if (flags.pid) keep_jobs_of(*flags.pid, answers);
  if (answers.empty()) {
    throw InvalidArgument(
        "no rank of this user runs on this host; jobs of other users, and jobs of one rank, are "
        "not shown");
  }
  std::vector<RankReport> reports;
  json raw = json::array();
  for (StatusAnswer& each : answers) {
    reports.push_back(std::move(each.report));
    raw.push_back(std::move(each.raw));
  }
  Health health = Health::healthy;
  json findings = json::array();
  std::string text;
  for (const JobReport& job : assess(std::move(reports), flags.stuck_after)) {
    health = std::max(health, job.health);
    for (const std::string& finding : job.findings) findings.push_back(finding);
    text += (text.empty() ? "" : "\n") + to_text(job);
  }
  if (flags.json) {
    text = cluster::dumped(
        {{"health", name_of(health)}, {"findings", findings}, {"ranks", std::move(raw)}});
  }
  fmt::print("{}", text);
  return health == Health::healthy ? kGood : kFailed;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = program.add_subcommand(
      "status", "Show running jobs, and the ranks that their calls wait for");
  app->footer(kFooter);
  add_value(*app, "pid PID", flags->pid, "Process of a rank on this host; default: all jobs",
            integer_between(1, 1 << 30));
  add_value(
      *app, "--stuck-after SECONDS", flags->stuck_after,
      fmt::format("Time without progress after which a call is stuck; default {}", kStuckAfter),
      number_between(0, kYear));
  app->add_flag("--json", flags->json, "Print JSON");
  return {app, [flags] { return run_status(*flags); }};
}

}  // namespace mccl::cli::status
