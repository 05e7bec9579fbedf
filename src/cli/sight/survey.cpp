#include "cli/sight/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "cli/sight/fields.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::sight {
namespace {

/// Returns the answer for a rank that has sent no valid status. `pid` is 0 if it is unknown.
RankAnswer unanswered(const std::string& job, int rank, int pid, std::string_view trouble) {
  json raw = {{"job", job}, {"rank", rank}, {"error", trouble}};
  if (pid != 0) raw["pid"] = pid;
  RankReport report;
  report.job = job;
  report.rank = rank;
  report.pid = pid;
  report.trouble = trouble;
  return {std::move(report), std::move(raw)};
}

/// Asks the rank for its status. Returns nothing if the rank has ended. The rank's job is taken
/// from the name of the rank's socket, so that a rank that does not answer has the same job as the
/// other ranks.
std::optional<RankAnswer> ask_rank(const RankSocket& socket) {
  const std::string who = text_of(socket);
  try {
    const std::string text = ask(socket, node::kRequestStatus);
    RankAnswer answer = {parse_status(text, who), json::parse(text)};
    answer.report.job = answer.raw["job"] = socket.job;
    return answer;
  } catch (const RankGone&) {
    return std::nullopt;
  } catch (const Error& error) {
    std::string_view trouble = error.what();
    if (trouble.starts_with(who + " ")) trouble.remove_prefix(who.size() + 1);
    return unanswered(socket.job, socket.rank, socket.pid, trouble);
  }
}

/// Calls `ask_one` for each element, each time on a new thread, because waiting for a rank that
/// does not answer takes seconds.
template <typename Result, typename Element, typename Ask>
std::vector<Result> ask_all(const std::vector<Element>& elements, const Ask& ask_one) {
  std::vector<std::future<Result>> asked;
  asked.reserve(elements.size());
  for (const Element& element : elements)
    asked.push_back(std::async(std::launch::async, ask_one, std::cref(element)));
  std::vector<Result> answers;
  answers.reserve(asked.size());
  for (auto& each : asked) answers.push_back(each.get());
  return answers;
}

/// A job that has ranks on other hosts.
struct SpreadJob {
  RankSocket contact;      ///< A rank on this host that has answered, and is asked about others.
  std::vector<int> known;  ///< The ranks on this host, and those that have left or are lost.
  int size = 0;
};

std::vector<SpreadJob> spread_jobs(const std::vector<RankSocket>& sockets,
                                   const std::vector<RankAnswer>& answers) {
  std::map<std::string, SpreadJob> jobs;
  for (const RankAnswer& each : answers) {
    const RankReport& report = each.report;
    SpreadJob& job = jobs[report.job];
    job.known.push_back(report.rank);
    if (!report.trouble.empty()) continue;
    job.size = report.size;
    for (const PeerReport& peer : report.peers)
      if (peer.state == "left" || peer.state == "lost") job.known.push_back(peer.rank);
    const auto socket = std::ranges::find_if(sockets, [&](const RankSocket& candidate) {
      return candidate.pid == report.pid && candidate.rank == report.rank;
    });
    if (socket != sockets.end()) job.contact = *socket;
  }
  std::vector<SpreadJob> spread;
  for (auto& [name, job] : jobs) {
    std::ranges::sort(job.known);
    job.known.erase(std::unique(job.known.begin(), job.known.end()), job.known.end());
    if (std::cmp_less(job.known.size(), job.size)) spread.push_back(std::move(job));
  }
  return spread;
}

/// Parses the status of a rank on another host. `text` is empty if the rank did not answer.
RankAnswer read_other(int rank, const std::string& text) {
  std::string trouble =
      "does not answer: its process is stopped or overloaded, or the network is slow";
  try {
    if (!text.empty()) {
      RankAnswer answer = {parse_status(text, "its status"), json::parse(text)};
      if (answer.report.rank == rank) return answer;
      trouble = fmt::format("reports that it is rank {}", answer.report.rank);
    }
  } catch (const InvalidArgument& error) {
    trouble = fmt::format("sent a status that cannot be read: {}", error.what());
  }
  return unanswered("", rank, 0, trouble);
}

/// Asks a rank on this host for the statuses of the other ranks of its job. If the query fails,
/// each of those ranks gets the reason as its `trouble`.
std::vector<RankAnswer> ask_for_others(const SpreadJob& job) {
  const RankSocket& contact = job.contact;
  std::vector<RankAnswer> others;
  try {
    others = read_others(ask(contact, node::kRequestOthers), text_of(contact), job.known);
    for (RankAnswer& each : others) each.report.job = each.raw["job"] = contact.job;
  } catch (const RankGone&) {
    // The rank that was asked has ended, so its job is ending. The job's ranks on other hosts are
    // not shown.
  } catch (const Error& error) {
    for (int rank = 0; rank < job.size; ++rank) {
      if (!std::ranges::binary_search(job.known, rank))
        others.push_back(
            unanswered(contact.job, rank, 0, fmt::format("could not be asked: {}", error.what())));
    }
  }
  return others;
}

}  // namespace

std::vector<RankAnswer> read_others(std::string_view text, std::string_view who,
                                    std::span<const int> known) {
  const json object = parse_json(text, who, "the statuses of other ranks");
  const Fields fields(object, who);
  fields.require_format("mccl others");
  if (object.contains("trouble"))
    throw InvalidArgument(
        fmt::format("{} cannot query the other ranks: {}", who, fields.text("trouble")));
  std::vector<RankAnswer> others;
  for (json each : fields.list("ranks")) {
    const Fields other(each, who);
    const int rank = static_cast<int>(other.integer("rank", 0, kMostRanks));
    const json& report = each["report"];  // Fields::text() would shorten a long text.
    if (!report.is_string()) other.refuse("report");
    if (std::ranges::find(known, rank) == known.end())
      others.push_back(read_other(rank, report.get<std::string>()));
  }
  return others;
}

std::vector<RankAnswer> survey(std::optional<int> pid) {
  std::vector<RankSocket> sockets = find_ranks();
  if (pid) {
    std::vector<std::string> jobs;
    for (const RankSocket& each : ranks_of(*pid)) jobs.push_back(each.job);
    std::erase_if(sockets, [&](const RankSocket& each) {
      return std::ranges::find(jobs, each.job) == jobs.end();
    });
  }
  std::vector<RankAnswer> answers;
  for (auto& each : ask_all<std::optional<RankAnswer>>(sockets, ask_rank))
    if (each) answers.push_back(*std::move(each));
  const std::vector<SpreadJob> spread = spread_jobs(sockets, answers);
  for (auto& others : ask_all<std::vector<RankAnswer>>(spread, ask_for_others))
    std::ranges::move(others, std::back_inserter(answers));
  return answers;
}

}  // namespace mccl::cli::sight
