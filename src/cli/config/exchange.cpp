#include "cli/config/exchange.h"

#include <fmt/format.h>

#include "cli/hosts/trials.h"
#include "cluster/text.h"

namespace mccl::cli::config {
namespace {

using cluster::Addressed;
using cluster::Choice;
using cluster::HostFacts;
using cluster::Severity;
using hosts::Dialled;
using hosts::LinkTime;
using hosts::Trial;

constexpr std::chrono::seconds kForTiming{120};

void add_both_ways(std::vector<Trial>& trials, int a, const std::string& at_a, int b,
                   const std::string& at_b) {
  trials.push_back({a, b, at_a, at_b});
  trials.push_back({b, a, at_b, at_a});
}

/// Adds trials between each host of a network and the next one in `order`, so that every host is
/// reached and answers.
void add_network(std::vector<Trial>& trials, std::span<const HostFacts> facts,
                 const cluster::Wire& wire, std::span<const int> order) {
  const auto addresses = addresses_in(facts, wire);
  std::vector<std::pair<int, std::string>> places;
  for (const int host : order)
    if (const auto found = addresses.find(host); found != addresses.end()) places.push_back(*found);
  for (std::size_t i = 0; i < places.size() && places.size() > 1; ++i) {
    const auto& next = places[(i + 1) % places.size()];
    if (places.size() == 2 && i == 1) break;
    add_both_ways(trials, places[i].first, places[i].second, next.first, next.second);
  }
}

/// Times all links except those of hosts on which ranks run. In the results of these, `tried` is
/// false.
std::vector<LinkTime> time_beside_jobs(hosts::Inquiry& inquiry, std::span<const HostFacts> facts,
                                       const std::vector<Trial>& trials) {
  const auto runs_a_job = [&](int host) { return facts[static_cast<std::size_t>(host)].ranks > 0; };
  std::vector<Trial> some;
  for (const Trial& trial : trials)
    if (!runs_a_job(trial.from) && !runs_a_job(trial.to)) some.push_back(trial);
  const std::vector<LinkTime> timed = time_links(inquiry, some, Clock::now() + kForTiming);
  std::vector<LinkTime> all;
  std::size_t next = 0;
  for (const Trial& trial : trials)
    all.push_back(runs_a_job(trial.from) || runs_a_job(trial.to) ? LinkTime{} : timed[next++]);
  return all;
}

}  // namespace

Exchanged exchange(hosts::Inquiry& inquiry, std::span<const HostFacts> facts, const Choice& choice,
                   std::span<const Addressed> links) {
  std::vector<Trial> trials;
  for (const Addressed& each : links)
    add_both_ways(trials, each.link.a.host, text_of(each.a.address), each.link.b.host,
                  text_of(each.b.address));
  for (const cluster::Wire& wire : choice.networks) add_network(trials, facts, wire, choice.order);
  const std::vector<Dialled> dialled = dial(inquiry, trials);
  const std::vector<LinkTime> timed = time_beside_jobs(inquiry, facts, trials);
  Exchanged result{.table = "", .findings = hosts::findings_of_lost(inquiry.asked())};
  std::vector<std::vector<std::string>> rows = {{"from", "to", "latency", "rate"}};
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    const std::string& from = facts[static_cast<std::size_t>(trial.from)].host;
    const std::string& to = facts[static_cast<std::size_t>(trial.to)].host;
    if (!dialled[i].tried) {
      result.findings.push_back({"link-untried", Severity::note, "the link was not tested",
                                 fmt::format("{} to {}", from, to),
                                 "the test could not be started on at least one of the hosts", ""});
    } else if (!dialled[i].good) {
      result.findings.push_back(
          {"link-dead", Severity::problem,
           fmt::format("{} does not reach {} at {}: {}", trial.source, to, trial.target,
                       dialled[i].why),
           fmt::format("{} to {}", from, to),
           "ranks on these hosts could not connect to each other",
           fmt::format("run mccl doctor --hosts {},{} for details", from, to)});
    } else {
      rows.push_back({fmt::format("{} {}", from, trial.source),
                      fmt::format("{} {}", to, trial.target),
                      timed[i].good ? fmt::format("{:.1f} us", timed[i].latency_s * 1e6) : "-",
                      timed[i].good ? cluster::rate_text(timed[i].bytes_per_s * 8 / 1e6) : "-"});
    }
  }
  if (rows.size() > 1) result.table = cluster::table_text(rows);
  return result;
}

}  // namespace mccl::cli::config
