#include "cli/sight/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/json_text.h"
#include "cli/kit/fields.h"
#include "cluster/text.h"

namespace mccl::cli::sight {
namespace {

using nlohmann::json;

GroupReport read_group(const json& object, std::string_view who) {
  const Fields fields(object, who);
  GroupReport group;
  group.name = fields.text("name");
  group.id = fields.text("id");
  group.members = fields.integers("members", Fields::kMostRanks);
  group.rank =
      static_cast<int>(fields.integer("rank", 0, static_cast<long long>(group.members.size()) - 1));
  group.last = fields.text("last");
  group.failure = fields.text("failure");
  for (const json& each : fields.list("pending")) {
    const Fields call(each, who);
    group.pending.push_back({.call = call.text("call"),
                             .waited_s = call.number("waited_s"),
                             .waits_for = call.integers("waits_for", Fields::kMostRanks),
                             .why = call.text("why")});
    for (const int rank : group.pending.back().waits_for)
      if (static_cast<std::size_t>(rank) >= group.members.size()) call.refuse("waits_for");
  }
  return group;
}

/// Adds a finding if it is new. The worst finding determines the health of the job.
void find(JobReport& job, Health health, std::string finding) {
  job.health = std::max(job.health, health);
  if (std::ranges::find(job.findings, finding) == job.findings.end())
    job.findings.push_back(std::move(finding));
}

/// Returns text such as "process 12", and the rank's host if it differs from the first rank's host.
std::string process_text(const JobReport& job, const RankReport& rank) {
  if (rank.pid == 0) return "its process";
  const bool is_elsewhere = rank.host != job.ranks.front().host && !rank.host.empty();
  return fmt::format("process {}{}", rank.pid, is_elsewhere ? " on " + rank.host : "");
}

/// Text such as "process 12 is in ...". Empty if the rank has sent no report.
std::string whereabouts(const JobReport& job, int rank, const std::string& group_id) {
  for (const RankReport& each : job.ranks) {
    if (each.rank != rank) continue;
    const std::string process = process_text(job, each);
    if (!each.trouble.empty()) return fmt::format("{} {}", process, each.trouble);
    for (const GroupReport& group : each.groups) {
      if (group.id != group_id) continue;
      if (!group.pending.empty())
        return fmt::format("{} is in {}", process, group.pending.front().call);
      if (group.last.empty()) return fmt::format("{} has made no call in that group", process);
      return fmt::format("{} has made no call in that group since {}", process, group.last);
    }
    if (each.is_truncated) return fmt::format("{} is in no call of that group", process);
    return fmt::format("{} has not created that group, or has destroyed it", process);
  }
  return {};
}

void assess_call(JobReport& job, const RankReport& rank, const GroupReport& group,
                 const PendingCall& call) {
  std::vector<std::string> others;
  bool all_here = true;
  for (const int member : call.waits_for) {
    const int other = group.members[static_cast<std::size_t>(member)];
    const std::string where = whereabouts(job, other, group.id);
    all_here &= !where.empty();
    others.push_back(where.empty() ? fmt::format("rank {}", other)
                                   : fmt::format("rank {} ({})", other, where));
  }
  const std::string whom = others.empty() ? "" : fmt::format(" for {}", fmt::join(others, ", "));
  const std::string why = call.why.empty() || (all_here && !others.empty()) ? "" : call.why;
  find(job, Health::stuck,
       fmt::format("rank {} has waited {:.3g} s in {} of group '{}'{}{}", rank.rank, call.waited_s,
                   call.call, group.name, whom, why));
}

void assess_rank(JobReport& job, const RankReport& rank, double stuck_after_s) {
  if (!rank.trouble.empty()) {
    const std::string process = rank.pid == 0 ? "" : fmt::format(" ({})", process_text(job, rank));
    find(job, Health::stuck, fmt::format("rank {}{} {}", rank.rank, process, rank.trouble));
  }
  for (const GroupReport& group : rank.groups) {
    if (!group.failure.empty())
      find(job, Health::failed,
           fmt::format("group '{}' has failed: {}", group.name, group.failure));
    for (const PendingCall& call : group.pending)
      if (call.waited_s >= stuck_after_s) assess_call(job, rank, group, call);
  }
  for (const PeerReport& peer : rank.peers) {
    if (peer.state == "lost")
      find(job, Health::failed,
           fmt::format("rank {} has lost rank {}: {}", rank.rank, peer.rank, peer.reason));
    if (peer.state == "silent") {
      find(job, Health::stuck,
           fmt::format(
               "rank {0} receives nothing from rank {1}: the process of rank {1} is stopped, "
               "or its host cannot be reached",
               rank.rank, peer.rank));
    }
  }
}

std::string waits_text(const GroupReport& group, const PendingCall& call) {
  std::vector<int> ranks;
  for (const int member : call.waits_for)
    ranks.push_back(group.members[static_cast<std::size_t>(member)]);
  if (ranks.empty()) return fmt::format("{:.1f} s", call.waited_s);
  return fmt::format("{:.1f} s for rank {}", call.waited_s, fmt::join(ranks, ", "));
}

/// One row for each pending call, or one if there is none.
void add_rows(cluster::TableRows& rows, const RankReport& rank) {
  const auto add = [&](std::string_view group, std::string_view call, const std::string& waits) {
    rows.push_back({std::to_string(rank.rank), rank.host,
                    rank.pid == 0 ? "" : std::to_string(rank.pid), std::to_string(rank.calls),
                    std::to_string(rank.errors), std::string(group), std::string(call), waits});
  };
  if (!rank.trouble.empty()) return add("", rank.trouble, "");
  bool is_busy = false;
  for (const GroupReport& group : rank.groups) {
    for (const PendingCall& call : group.pending) {
      is_busy = true;
      add(group.name, call.call, waits_text(group, call));
    }
  }
  if (!is_busy) add("", "in no call", "");
}

/// The state of a rank without a report is taken from the first report that lists peers.
void add_absent_rows(cluster::TableRows& rows, const JobReport& job) {
  std::set<int> reported;
  for (const RankReport& rank : job.ranks) reported.insert(rank.rank);
  const auto rank =
      std::ranges::find_if(job.ranks, [](const RankReport& each) { return !each.peers.empty(); });
  if (rank == job.ranks.end()) return;
  for (const PeerReport& peer : rank->peers) {
    if (reported.contains(peer.rank)) continue;
    rows.push_back({std::to_string(peer.rank), "", "", "", "", "",
                    fmt::format("{}, according to rank {}", peer.state, rank->rank), ""});
  }
}

}  // namespace

RankReport parse_status(std::string_view text, std::string_view who) {
  RankReport rank;
  rank.raw = parse_json(text, who, "the status of a rank");
  const Fields fields(rank.raw, who);
  fields.require_format("mccl status");
  rank.job = fields.text("job");
  rank.host = fields.text("host");
  rank.size = static_cast<int>(fields.integer("size", 1, Fields::kMostRanks));
  rank.rank = static_cast<int>(fields.integer("rank", 0, rank.size - 1));
  rank.pid = static_cast<int>(fields.integer("pid", 1, INT32_MAX));
  rank.calls = fields.integer("calls", 0, INT64_MAX);
  rank.errors = fields.integer("errors", 0, INT64_MAX);
  rank.is_truncated = fields.has("truncated");
  if (!fields.flag("answers"))
    rank.trouble = "is blocked by a callback, so its calls make no progress";
  for (const json& each : fields.list("groups")) rank.groups.push_back(read_group(each, who));
  for (const json& each : fields.list("peers")) {
    const Fields peer(each, who);
    rank.peers.push_back({.rank = static_cast<int>(peer.integer("rank", 0, rank.size - 1)),
                          .state = peer.text("state"),
                          .reason = peer.text("reason")});
  }
  return rank;
}

std::vector<JobReport> assess(std::vector<RankReport> ranks, double stuck_after_s) {
  std::ranges::sort(ranks, [](const RankReport& a, const RankReport& b) {
    return std::tie(a.job, a.rank, a.pid) < std::tie(b.job, b.rank, b.pid);
  });
  std::vector<JobReport> jobs;
  for (RankReport& rank : ranks) {
    if (jobs.empty() || jobs.back().ranks.front().job != rank.job) jobs.emplace_back();
    jobs.back().ranks.push_back(std::move(rank));
  }
  for (JobReport& job : jobs)
    for (const RankReport& rank : job.ranks) assess_rank(job, rank, stuck_after_s);
  return jobs;
}

std::string_view name_of(Health health) {
  constexpr std::string_view kNames[] = {"healthy", "stuck", "failed"};
  return kNames[static_cast<std::size_t>(health)];
}

std::string to_text(const JobReport& job) {
  std::set<std::string> hosts;
  for (const RankReport& rank : job.ranks)
    if (!rank.host.empty()) hosts.insert(rank.host);
  const auto answered = std::ranges::find(job.ranks, "", &RankReport::trouble);
  std::string text =
      answered == job.ranks.end()
          ? fmt::format("job {}: no rank on this host answers\n", job.ranks.front().job)
          : fmt::format("job {}: {} ranks on {} host{}\n", answered->job, answered->size,
                        hosts.size(), hosts.size() == 1 ? "" : "s");
  cluster::TableRows rows = {
      {"rank", "host", "process", "calls", "errors", "group", "call", "waits"}};
  for (const RankReport& rank : job.ranks) add_rows(rows, rank);
  add_absent_rows(rows, job);
  text += cluster::table_text(rows);
  text += fmt::format("{}\n", name_of(job.health));
  for (const std::string& finding : job.findings) text += fmt::format("  {}\n", finding);
  return text;
}

}  // namespace mccl::cli::sight
