#include "cli/hosts/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/value_text.h"
#include "cluster/read_facts.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;

using Commands = std::vector<std::vector<std::string>>;

constexpr auto kForDials = 15s;
constexpr auto kForRound = 15s;
constexpr double kSecondsOfLink = 0.25;

/// Asks, and gives up hosts that owe more than they should: each further question would have to be
/// waited for as long.
Commands ask(Inquiry& inquiry, const Commands& commands, std::chrono::seconds patience) {
  Commands answers = inquiry.probe(commands, patience);
  for (std::size_t host = 0; host < commands.size(); ++host) {
    const auto heard = std::ranges::count_if(
        answers[host], [](const std::string& text) { return text.starts_with("heard "); });
    if (answers[host].size() - static_cast<std::size_t>(heard) < commands[host].size())
      inquiry.give_up(host);
  }
  return answers;
}

/// A probe tries so many at a time, each for some seconds at most.
std::chrono::seconds patience_for(const Commands& commands) {
  constexpr std::size_t kAtOnce = 512;
  std::size_t most = 0;
  for (const auto& of_host : commands) most = std::max(most, of_host.size());
  return kForDials * static_cast<std::chrono::seconds::rep>(1 + most / kAtOnce);
}

std::uint16_t port_of(const Inquiry& inquiry, const Trial& trial) {
  const Asked& to = inquiry.asked()[static_cast<std::size_t>(trial.to)];
  return to.ports[std::min(trial.port, to.ports.size() - 1)];
}

bool can_be_tried(const Inquiry& inquiry, const Trial& trial) {
  return inquiry.has_probe(static_cast<std::size_t>(trial.from)) &&
         inquiry.has_probe(static_cast<std::size_t>(trial.to));
}

std::string source_of(const Trial& trial) { return trial.source.empty() ? "-" : trial.source; }

/// Calls `then` with the number of the trial and the words of each answer of that kind.
template <typename Then>
void each_answer(const Commands& answers, std::string_view kind, std::size_t trials, Then&& then) {
  for (const auto& of_host : answers) {
    for (const std::string& answer : of_host) {
      const auto words = cluster::words_of(answer);
      if (words.size() < 3 || words[0] != kind) continue;
      const auto number = static_cast<std::size_t>(cluster::count_of(words[1]));
      if (number < trials) then(number, words, answer);
    }
  }
}

}  // namespace

std::vector<Dialled> dial(Inquiry& inquiry, std::span<const Trial> trials) {
  std::vector<Dialled> results(trials.size());
  Commands commands(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    results[i].tried = true;
    results[i].why = "no answer";
    commands[static_cast<std::size_t>(trial.from)].push_back(fmt::format(
        "dial {} {} {} {}", i, source_of(trial), trial.target, port_of(inquiry, trial)));
  }
  each_answer(ask(inquiry, commands, patience_for(commands)), "dialled", trials.size(),
              [&](std::size_t i, const auto& words, const std::string& answer) {
                Dialled& result = results[i];
                result.good = words[2] == "good" && words.size() == 5;
                if (result.good) {
                  result.why.clear();
                  result.local = words[3];
                  result.seconds = parse_number(words[4]).value_or(0);
                } else if (words[2] == "bad" && words.size() > 3) {
                  result.why = printable(
                      answer.substr(static_cast<std::size_t>(words[3].data() - answer.data())));
                }
              });
  // Of a host that was lost meanwhile it is not known why others do not reach it.
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (!can_be_tried(inquiry, trials[i])) results[i].tried = false;
  return results;
}

std::vector<bool> send_packets(Inquiry& inquiry, std::span<const Trial> trials,
                               std::span<const int> bytes) {
  std::vector<bool> results(trials.size(), false);
  Commands commands(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    commands[static_cast<std::size_t>(trial.from)].push_back(
        fmt::format("packet {} {} {} {} {}", i, source_of(trial), trial.target,
                    inquiry.asked()[static_cast<std::size_t>(trial.to)].packet_port, bytes[i]));
  }
  each_answer(ask(inquiry, commands, patience_for(commands)), "packet", trials.size(),
              [&](std::size_t i, const auto& words, const std::string&) {
                results[i] = words[2] == "good";
              });
  return results;
}

std::vector<Timed> time_links(Inquiry& inquiry, std::span<const Trial> trials) {
  std::vector<Timed> results(trials.size());
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (can_be_tried(inquiry, trials[i])) left.push_back(i);
  while (!left.empty()) {
    Commands commands(inquiry.asked().size());
    std::set<int> busy;
    std::vector<std::size_t> later;
    for (const std::size_t i : left) {
      const Trial& trial = trials[i];
      if (!can_be_tried(inquiry, trial)) continue;
      if (busy.contains(trial.from) || busy.contains(trial.to)) {
        later.push_back(i);
        continue;
      }
      busy.insert({trial.from, trial.to});
      commands[static_cast<std::size_t>(trial.from)].push_back(
          fmt::format("time {} {} {} {} {}", i, source_of(trial), trial.target,
                      port_of(inquiry, trial), kSecondsOfLink));
    }
    each_answer(ask(inquiry, commands, kForRound), "timed", trials.size(),
                [&](std::size_t i, const auto& words, const std::string&) {
                  if (words.size() != 4) return;
                  results[i].latency_s = parse_number(words[2]).value_or(0);
                  results[i].bytes_per_s = parse_number(words[3]).value_or(0);
                  results[i].good = results[i].bytes_per_s > 0;
                });
    left = std::move(later);
  }
  return results;
}

}  // namespace mccl::cli::hosts
